// A rule over the past: when it would have fired, of whom, and what its ladder would have done.

import { Graph } from "../charts/graph.mjs";
import { isAdmin, me } from "../parts/account.mjs";
import { ofWords, placeOf } from "./alert_words.mjs";
import { look, send } from "../parts/api.mjs";
import { sentence } from "../parts/dialog.mjs";
import { button, make, options, say, show } from "../parts/dom.mjs";
import { age, amount, moment, plural, when } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";

const SPANS = [["3600", "the last hour"], ["86400", "the last day"], ["604800", "the last week"], ["2592000", "the last 30 days"]];
const AGAIN_MS = 700;
const NAMED = 12;
let graph = null; // one for all forms: it is Dash's, and goes from one to the next

/** `draft()`: the rule as it is being written, or why there is none as an Error. */
export class Rehearsal {
  constructor(draft) {
    this.draft = draft;
    this.span = make("select", { "aria-label": "Rehearse over" }, options(SPANS));
    this.span.value = "86400";
    this.button = button("Rehearse", () => this.begin());
    this.words = make("output", { class: "rehearsal-words", role: "status" }, "No actions are taken and no notifications are sent.");
    graph ??= new Graph("rehearsal-graph");
    show(graph.place, false);
    this.list = make("ul", { class: "rehearsal-list" });
    this.root = make("div", { class: "rehearsal wide" }, make("div", { class: "rehearsal-ask" }, this.span, this.button), this.words, graph.place, this.list);
  }

  async begin() {
    this.button.disabled = true;
    try {
      const rule = await this.draft();
      const end = Date.now() / 1000;
      let found = await send("POST", "rules/backtests", { rule, start: end - Number(this.span.value), end });
      while (found.state === "running" && this.root.isConnected) {
        say(this.words, `Rehearsing … ${amount(100 * found.progress)} %`);
        await new Promise((done) => setTimeout(done, AGAIN_MS));
        found = await look(`rules/backtests/${encodeURIComponent(found.id)}`);
      }
      this.draw(found);
    } catch (error) {
      say(this.words, sentence(error.message));
    } finally {
      this.button.disabled = false;
    }
  }

  /** When it would have fired, for whom, and when it did: below it the same in words. */
  async drawGraph(found) {
    show(graph.place, false);
    if (found.state !== "done") return;
    try {
      const { fired } = await graph.ask({ id: found.id }, { height: 0, at: found.end });
      show(graph.place, found.alerts.length > 0 || fired > 0);
      if (fired !== null) say(this.words, `${this.words.textContent} ${firedWords(fired)}`);
    } catch (error) {
      say(this.words, `${this.words.textContent} ${sentence(error.message)}`);
    }
  }

  draw(found) {
    say(this.words, found.state === "running" ? "" : wordsOf(found));
    this.drawGraph(found);
    this.list.replaceChildren(...found.alerts.slice(0, NAMED).map((alert) => make("li", {}, `${placeOf({ of: found.of, ...alert })}, ${moment(alert.fired_at)}${found.of !== "owner" && alert.users.length > 0 ? `, ${alert.users.slice(0, 3).join(", ")}` : ""}`)),
      ...(found.alerts_count > NAMED ? [make("li", {}, `and ${amount(found.alerts_count - Math.min(NAMED, found.alerts.length))} more`)] : []),
      ...found.refused.slice(0, NAMED).map((one) => make("li", { "data-refused": "" }, `${placeOf({ of: found.of, place: "", ...one })}, ${moment(one.at)}: '${one.do}' would be refused: ${one.why}`)));
  }
}

function wordsOf({ state, why, alerts_count: alerts, targets, of, victims_count: victims, victims: named, gpu_hours: hours, refused_count: refused, off_by_s: off }) {
  if (state !== "done") return sentence(why === "" ? `The rehearsal is ${state}` : why);
  const whose = [...new Set(named.flatMap(({ users }) => users))].slice(0, 5).join(", ");
  const done = victims === 0 ? "" : ` Its actions would have run ${plural(victims, "time")}${whose === "" ? "" : `, on ${whose}`}${hours === null ? "" : `: ${amount(hours, 1)} GPU-hours`}.`;
  const not = refused === 0 ? "" : ` ${plural(refused, "action")} would be refused, as the nodes are now.`;
  const exact = { 0: "", 1: " Based on seconds where they are kept; live evaluation may differ by one sample." }[off] ?? " Based on minutes; live evaluation looks at every second, and may differ by a minute.";
  const times = alerts === 0 ? "not have fired" : alerts === 1 ? "have fired once" : `have fired ${plural(alerts, "time")}`;
  return `It would ${times} (${ofWords(of, targets)} evaluated).${done}${not}${exact}`;
}

const firedWords = (fired) => (fired === 0 ? "It did not fire in that time." : `In that time it did fire ${plural(fired, "time")}.`);

/** Those of a rule that are kept, for whoever decides what it may do. */
export async function rehearsalsOf(rule, version) {
  const [found, person] = await Promise.all([look(`rules/backtests?rule=${encodeURIComponent(rule.id)}`), me()]).catch((error) => [error, null]);
  if (found.items === undefined) return make("p", {}, sentence(found.message));
  const done = found.items.filter(({ state }) => state === "done").slice(0, 5);
  if (done.length === 0) return make("p", {}, "Not rehearsed yet. Open “Edit”, then “Rehearsal”.");
  return make("ul", { class: "rehearsal-list" }, ...done.map((one) => {
    const words = make("span", {}, rehearsalWords(one, version));
    const isOther = one.by !== person?.name || !person.second_person;
    const mayApprove = person !== null && isAdmin(person) && one.approved_by === null && isOther && one.rule_version === version;
    const approve = button("Approve", async () => {
      approve.disabled = true;
      try {
        say(words, rehearsalWords(await change("POST", `rules/backtests/${encodeURIComponent(one.id)}/approve`), version));
        approve.remove();
      } catch (error) {
        say(words, `${rehearsalWords(one, version)}. ${sentence(error.message)}`);
        approve.disabled = false;
      }
    });
    return make("li", {}, words, mayApprove ? approve : null);
  }));
}

function rehearsalWords({ by, asked_at: at, start, end, alerts_count: alerts, victims_count: victims, refused_count: refused, approved_by: approved, rule_version: of }, version) {
  return `${of === version ? "" : "Earlier version: "}${age(end - start)}, ${plural(alerts, "alert")}, ${plural(victims, "action")}${refused > 0 ? `, ${amount(refused)} refused` : ""}; by ${by}, ${when(at)}${approved === null ? "" : `; approved by ${approved}`}`;
}
