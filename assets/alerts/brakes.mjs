// On the Alerts page: what bounds automatic acts, what holds them now, and nodes that people work on.

import { look, lookAtAll, send } from "../parts/api.mjs";
import { choiceField, textField } from "../parts/dialog.mjs";
import { button, byId, make, redraw, show } from "../parts/dom.mjs";
import { plural, when } from "../parts/format.mjs";
import { change } from "../parts/password_prompt.mjs";
import { Rows, stacked, timeCell } from "../parts/rows.mjs";

const RESET = new Set(["breaker", "storm"]); // those that stay until somebody has looked
const STORMS_SAID = 2;
export const LASTS = [["3600", "1 hour"], ["14400", "4 hours"], ["86400", "1 day"], ["604800", "1 week"]];

export class Brakes {
  /** `page`: who looks, and looks again. */
  constructor(page) {
    this.page = page;
    this.rows = new Rows({
      label: "Brakes", key: ({ name }) => name, empty: "No brake is set.",
      columns: [
        { head: "Brake", draw: (cell, one) => stacked(cell, ["strong", "name", one.title]) },
        { head: "Limit", draw: (cell, one) => stacked(cell, ["span", "", one.limit], ["small", "", `Released: ${one.lets_go}`]) },
        { head: "Now", draw: (cell, one) => stacked(cell, ...nowOf(one)) },
      ],
      actions: (one) => (page.may("admin") && one.holds && RESET.has(one.name) ? [["Reset …", () => this.reset(), { "aria-label": `Reset: ${one.title}` }]] : []),
    });
    this.nodes = new Rows({
      label: "Nodes in maintenance", key: ({ node }) => node, empty: "No node is in maintenance.",
      columns: [{ head: "Node", text: ({ host }) => host }, { head: "Reason", text: ({ because }) => because }, { head: "By", text: ({ by }) => by }, { head: "Until", draw: timeCell(({ until }) => until) }],
      actions: (one) => (page.may("operator") ? [["End maintenance", () => this.end(one), { "aria-label": `End the maintenance of ${one.host}` }]] : []),
    });
    byId("alerts-brakes").append(this.rows.root);
    byId("alerts-maintenance").append(this.nodes.root);
    byId("alerts-maintain").addEventListener("click", () => this.begin());
  }

  async look() {
    const [brakes, maintenance] = await Promise.all(["brakes", "maintenance"].map(look));
    this.seen = brakes;
    this.rows.update(brakes.brakes);
    this.nodes.update(maintenance.items);
    show(byId("alerts-maintain"), this.page.may("operator"));
    this.stop(brakes);
  }

  /** What is latched is said at the top: nothing will act until somebody has looked. */
  stop({ breaker, storms }) {
    const place = byId("alerts-stopped");
    const more = storms.length - STORMS_SAID;
    const words = [breaker === null ? null : `No rule may act: ${breaker.sentence}`, ...storms.slice(0, STORMS_SAID).map(({ source, trip }) => `${source[0].toUpperCase()}${source.slice(1)} is stopped: ${trip.sentence.replace(`${source} `, "it ")}`),
      more > 0 ? `${plural(more, "more rule")} stopped for the same reason` : null].filter(Boolean).join(". ");
    show(place, words !== "");
    redraw(place, words, () => [make("span", {}, `${words}. `), ...(words !== "" && this.page.may("admin") ? [button("Reset …", () => this.reset())] : [])]);
  }

  async reset() {
    await this.page.asked({
      title: "Reset the brakes", verb: "Reset", tone: "bad",
      lead: "Rules may act again. Waiting actions are dropped and ladders start from the first step.",
      fields: [textField("reason", "Reason", { required: "", maxlength: "400", placeholder: "what was found, and why it is safe" })],
      submit: (given) => change("POST", "brakes", { reason: given.get("reason").trim() }),
    });
  }

  async begin() {
    const nodes = await lookAtAll("nodes").catch(() => []);
    await this.page.asked({
      title: "Put a node in maintenance", verb: "Start",
      lead: "Rules do not act on the node, and people have to confirm twice.",
      fields: [choiceField("node", "Node", nodes.map(({ id, host }) => [id, host]), nodes[0]?.id ?? ""), choiceField("lasts", "For", LASTS, "14400"),
        textField("because", "Reason", { required: "", maxlength: "400", placeholder: "replacing a fan" })],
      submit: (given) => send("PUT", `nodes/${encodeURIComponent(given.get("node"))}/maintenance`, { because: given.get("because").trim(), until: Date.now() / 1000 + Number(given.get("lasts")) }),
    });
  }

  async end({ node, host }) {
    await this.page.asked({ title: `End the maintenance of ${host}?`, lead: "Rules may act on this node again.", verb: "End maintenance", submit: () => change("DELETE", `nodes/${encodeURIComponent(node)}/maintenance`) });
  }
}

function nowOf({ holds, used, most, sentence }) {
  const count = used === null ? "" : most === null ? (used > 0 ? String(used) : "") : `${used} of ${most}`;
  return [["span", holds ? "pill lost" : "pill ok", holds ? "blocking" : "not blocking"], count === "" ? null : ["span", "brake-count", count], sentence === "" ? null : ["small", "", sentence]];
}

// A moment that is over would read as if it had been done.
function dueWords(dueAt, holds) {
  if (dueAt === null) return "";
  if (dueAt > Date.now() / 1000) return ` ${when(dueAt)}`;
  return holds.length > 0 ? ", once nothing blocks it" : ", at the next evaluation";
}

/** What comes next of an alert's ladder, and what was done. */
export function drawLadder(cell, { ladder, holds }) {
  if (ladder === null || ladder === undefined) { stacked(cell, ["span", "no-value", "–"]); return; }
  const { mode, next, due_at: dueAt, why, done, confirm } = ladder;
  const will = next === null ? "no further step" : confirm ? `${next}, waiting for approval` : `${next}${dueWords(dueAt, holds)}`;
  stacked(cell, ["span", "", will], mode === "dry_run" ? ["small", "", "dry run: only logged"] : null, why === "" || holds.includes(why) ? null : ["small", "", why],
    ...done.slice(-3).map((step) => ["small", "", `${step.do} ${when(step.at)}: ${step.sentence || step.outcome || "in progress"}`]));
}
