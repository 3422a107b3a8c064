// The Alerts page: what fires, waits, is held or silenced, what fired, and the rules behind it.

import { drawGroup, drawHosts, linesOf } from "./alert_groups.mjs";
import { TONES, drawAlert, drawCondition, drawDue, drawHolds, drawNow, drawRule, drawTarget, isExplained, isSilenced, matchersOf, placeOf, valueWords } from "./alert_words.mjs";
import { ACTS } from "../actions/action_words.mjs";
import { begin } from "../actions/actions.mjs";
import { drainForm } from "../actions/limit_forms.mjs";
import { look, send } from "../parts/api.mjs";
import { Brakes, LASTS, drawLadder } from "./brakes.mjs";
import { choiceField, open, sentence, textField } from "../parts/dialog.mjs";
import { byId, isShortcut, make, say, sayOrHide, show } from "../parts/dom.mjs";
import { RANKS, listed } from "./firing.mjs";
import { PastAlerts } from "./past_alerts.mjs";
import { age, amount, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { change } from "../parts/password_prompt.mjs";
import { Rows, timeCell } from "../parts/rows.mjs";
import { SiteAlerts } from "./site_alerts.mjs";
import { editRule } from "./rule_form.mjs";
import { nameTab } from "../parts/tab.mjs";
import { toast } from "../parts/toast.mjs";

const EVERY_MS = 5_000;
const SOON_MS = 250;
const MOST_TARGETS = 20; // that the hub is asked about at once
const WATCHED = ["firing", "pending", "held", "silenced"];
const VIEWS = [...WATCHED, "ended"];
const SILENCES = [...LASTS, ["2592000", "30 days"]];
const MODES = [["observe", "observe: no actions"], ["dry_run", "dry run: actions are only logged"], ["confirm", "confirm: a person approves each action"], ["auto", "auto: runs on its own, within the brakes"]];
const EMPTY = {
  firing: "No alert is firing. An alert fires when a rule's condition has been met for the required time.",
  pending: "No alert is pending.",
  held: "No alert is blocked.",
  silenced: "No firing alert is silenced.",
};

/** Critical for the GPU itself: repair starts with a drain. */
const isOfBoard = ({ of, severity, state }) => of === "gpu" && severity === "crit" && state === "firing";

export default class AlertsPage extends Looker {
  constructor(root, live, holds, store) {
    super(live, EVERY_MS, { problem: byId("alerts-problem") });
    Object.assign(this, { root, rules: [], lists: {}, opened: new Set() });
    this.tables = Object.fromEntries([...WATCHED.map((name) => [name, this.alertRows(name)]), ["silences", this.silenceRows()], ["rules", this.ruleRows()]]);
    for (const [name, rows] of Object.entries(this.tables)) byId(`alerts-${name}`).append(rows.root);
    this.brakes = new Brakes(this);
    this.siteAlerts = new SiteAlerts();
    this.past = new PastAlerts(byId("alerts-view-ended"), live, holds, store);
    this.listen(live);
    this.choose(VIEWS.find((name) => location.hash === `#${name}`) ?? "firing", false);
    this.begin();
  }

  listen(live) {
    byId("alerts-silence").addEventListener("click", () => this.silence());
    byId("alerts-new").addEventListener("click", () => this.edit(null));
    byId("alerts-views").addEventListener("click", ({ target }) => { const name = target.closest("[data-view]")?.dataset.view; if (name) this.choose(name); });
    live.addEventListener("alert", () => this.soon());
    document.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("hashchange", () => this.choose(VIEWS.find((name) => location.hash === `#${name}`) ?? "firing", false));
  }

  async begin() {
    await this.meet();
    show(byId("alerts-new"), this.may("admin"));
    show(byId("alerts-silence"), this.may("operator"));
    this.look();
  }

  choose(name, isKept = true) {
    this.view = name;
    for (const button of byId("alerts-views").children) button.setAttribute("aria-pressed", String(button.dataset.view === name));
    for (const each of VIEWS) show(byId(`alerts-view-${each}`), each === name);
    if (isKept) history.replaceState(history.state, "", `${location.pathname}${name === "firing" ? "" : `#${name}`}`);
  }

  onKey(event) {
    if (!isShortcut(event)) return;
    const view = VIEWS[Number(event.key) - 1];
    if (view !== undefined) this.choose(view);
    else if (event.key === "n" && this.may("admin")) this.edit(null);
    else if (event.key === "s" && this.may("operator")) this.silence();
    else return;
    event.preventDefault();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), SOON_MS);
  }

  async ask() {
    const [found] = await Promise.all([Promise.all(["alerts", "alerts?state=pending", "rules", "silences"].map(look)), this.brakes.look(), this.siteAlerts.look()]);
    return [...found, await silencedBefore(...found)];
  }

  fail(error) {
    super.fail(error);
    for (const rows of Object.values(this.tables)) rows.fail("No data yet.");
    this.root.classList.add("ready");
  }

  take(found) {
    const [open, pending, rules, silences, ended] = found.map(({ items }) => items);
    this.proofH = found[2].proof_h;
    this.rules = rules;
    this.root.classList.add("ready");
    const lists = this.lists = {
      firing: listed(open).filter((one) => !isSilenced(one)).sort((one, other) => waitsFor(other) - waitsFor(one) || RANKS[other.severity] - RANKS[one.severity]), pending, held: open.filter((one) => (one.holds.length > 0 || isExplained(one)) && !isSilenced(one)),
      silenced: open.filter(isSilenced),
    };
    this.names = { titles: new Map(rules.map(({ rule }) => [rule.id, rule.title])), places: new Map([...ended, ...pending, ...open].map((one) => [one.target, placeOf(one)])) };
    this.drawLists();
    for (const button of byId("alerts-views").children) {
      const count = lists[button.dataset.view]?.length ?? 0;
      say(button.querySelector(".alerts-count"), count === 0 ? "" : amount(count));
    }
    this.tables.rules.update([...rules].sort(byUse));
    this.tables.silences.update(silences.filter(isInForce));
    const count = lists.firing.length;
    const asked = lists.firing.filter(waitsFor).length;
    const words = [count === 0 ? "No alert is firing" : `${amount(count)} firing`, asked > 0 ? `${amount(asked)} waiting for approval` : "", pending.length > 0 ? `${amount(pending.length)} pending` : "", lists.silenced.length > 0 ? `${amount(lists.silenced.length)} silenced` : ""];
    say(byId("alerts-words"), `${words.filter(Boolean).join(", ")}. ${plural(rules.length, "rule")}.`);
    nameTab(count === 0 ? "Alerts" : `(${amount(count)}) Alerts`);
  }

  drawLists() {
    for (const name of WATCHED) this.tables[name].update(linesOf(this.lists[name] ?? [], this.opened));
  }

  toggle(rule) {
    if (!this.opened.delete(rule)) this.opened.add(rule);
    this.drawLists();
  }

  alertRows(name) {
    const value = { head: "Value", text: (alert) => (alert.members ? "" : valueWords(alert, this.rules)) };
    const head = (cell, alert) => (alert.members ? drawGroup(cell, alert, TONES[alert.severity], (rule) => this.toggle(rule)) : drawAlert(cell, alert));
    const columns = [{ head: "Alert", draw: head }, { head: "Where", draw: (cell, alert) => (alert.members ? drawHosts : drawTarget)(cell, alert) }, value, ...columnsOf(name)];
    const maySilence = name === "firing" || name === "pending" || name === "held";
    return new Rows({
      label: `Alerts: ${name === "held" ? "blocked" : name}`, key: ({ id }) => id, empty: EMPTY[name], columns, isSteady: true,
      actions: (alert) => (alert.members ? this.groupActs(alert, maySilence) : [...(alert.ladder?.confirm && this.person?.role !== "viewer" ? [[`Approve: ${alert.ladder.next}`, (it) => this.confirm(it), { "aria-label": `Approve: ${alert.ladder.next} at ${placeOf(alert)}` }]] : []), ...(isOfBoard(alert) && this.may("operator") ? [["Drain GPU", (it) => begin("drain", [it.target], null, drainForm(it.target)), { "aria-label": `Drain ${placeOf(alert)}` }]] : []), ...(maySilence && this.may("operator") ? [["Silence", (it) => this.silenceOne(it), { "aria-label": `Silence ${alert.title} at ${placeOf(alert)}` }]] : [])]),
    });
  }

  groupActs({ title, rule }, maySilence) {
    return maySilence && this.may("operator") ? [["Silence …", () => this.silence(null, rule), { "aria-label": `Silence ${title} everywhere` }]] : [];
  }

  ruleRows() {
    return new Rows({
      label: "Rules", key: ({ rule }) => rule.id, empty: "There are no rules. Admins add one with “New rule”.",
      columns: [
        { head: "Rule", draw: drawRule },
        { head: "Condition", draw: drawCondition },
        { head: "Now", draw: drawNow },
        { head: "Mode", text: ({ mode }) => mode.replaceAll("_", " ") },
      ],
      actions: ({ rule }) => [[this.may("admin") ? "Edit" : "Show", (it) => this.edit(it.rule, it.number), { "aria-label": `${this.may("admin") ? "Edit" : "Show"} ${rule.title}` }],
        ...(this.may("operator") && rule.ladder.length > 0 ? [["Mode …", (it) => this.setMode(it), { "aria-label": `Mode of ${rule.title}` }]] : []),
        ...(this.may("admin") ? [["Remove", (it) => this.remove(it.rule), { "aria-label": `Remove ${rule.title}` }]] : [])],
    });
  }

  silenceRows() {
    return new Rows({
      label: "Silences", key: ({ id }) => id, empty: "Nothing is silenced.",
      columns: [
        { head: "What", text: (one) => matchersOf(one, this.names) },
        { head: "Reason", text: ({ because }) => because },
        { head: "By", text: ({ by }) => by },
        { head: "From", draw: timeCell(({ begins }) => begins) },
        { head: "Until", draw: timeCell(({ until }) => until) },
      ],
      actions: (one) => (this.may("operator") ? [["End silence", (it) => this.endSilence(it), { "aria-label": `End the silence of ${matchersOf(one, this.names)}` }]] : []),
    });
  }

  async edit(rule, number = null) {
    const kept = await editRule(rule, number, this.may("admin"));
    if (kept === null) return;
    toast(`“${kept.rule.title}” is active, mode ${kept.mode.replaceAll("_", " ")}.`);
    this.look();
  }

  async setMode({ rule }) {
    const asking = this.asked({
      title: `Mode of “${rule.title}”`, verb: "Save",
      lead: `Lowering the mode takes effect immediately. Only admins can raise it; auto also requires ${age(this.proofH * 3_600)} of dry run, or an approved rehearsal over as long a time, and an end date.`,
      fields: [choiceField("mode", "Mode", MODES, rule.mode), textField("expires", "Until", { maxlength: "10", value: rule.expires, placeholder: "2027-01-31" }, "The last day of auto, within 180 days."), make("div", { class: "field" }, make("span", { class: "label" }, "Rehearsals"), this.past.rehearsalsOf(rule.id))],
      submit: (given) => change("POST", `rules/${encodeURIComponent(rule.id)}/mode`, { mode: given.get("mode"), ...(given.get("expires").trim() === rule.expires ? {} : { expires: given.get("expires").trim() }) }),
    });
    this.past.choose({ rehearsed: rule.id }, false);
    await asking;
  }

  /** As any act: looked at first, and ordered with what was seen. */
  confirm(alert) {
    const { id, ladder } = alert;
    const signal = this.rules.find(({ rule }) => rule.id === alert.rule)?.rule.signal ?? "it";
    const lead = `Requested by the rule “${alert.title}”: ${signal} is ${valueWords(alert, this.rules)}, condition met for ${age(Date.now() / 1000 - alert.since)}.`;
    const action = ACTS.find(({ rung }) => rung === ladder.next).id;
    begin(action, ladder.task_ids, null, null, async ({ preview, reason }) => ({ items: [await send("POST", `alerts/${encodeURIComponent(id)}/confirm`, { preview, reason })] }), lead);
  }

  remove(rule) {
    return this.sure(`Remove “${rule.title}”?`, "Remove", "The rule is no longer evaluated and its alerts are resolved. Earlier versions are kept.",
      () => change("DELETE", `rules/${encodeURIComponent(rule.id)}`));
  }

  /** One click more: for how long. A reason may stand beside it. */
  silenceOne(alert) {
    const because = textField("because", "Reason", { maxlength: "400", placeholder: "under investigation" }, "Optional.");
    const problem = make("p", { class: "problem", role: "alert", hidden: "" });
    const during = make("div", { class: "silence-spans" }, ...LASTS.map(([seconds, words]) => make("button", { type: "button", class: "button first", onclick: () => silence(seconds) }, words)));
    const body = make("div", { class: "form dialog-body" }, make("p", {}, `${alert.title}, at ${placeOf(alert)}. The alert stays visible; no notification is sent and no rule acts on it, for`), during, because, problem,
      make("div", { class: "dialog-foot" }, make("button", { type: "button", class: "button", onclick: () => { dialog.close(); this.silence(alert); } }, "More options …")));
    const dialog = open("Silence", body);
    during.firstElementChild.focus();
    const silence = async (seconds) => {
      try {
        await send("POST", "silences", { until: Date.now() / 1000 + Number(seconds), because: because.querySelector("input").value.trim() || `silenced from the alert by ${this.person.name}`, rule: alert.rule, target: alert.target });
        dialog.close();
        this.look();
      } catch (error) {
        sayOrHide(problem, sentence(error.message));
      }
    };
  }

  async silence(alert = null, rule = alert?.rule ?? "") {
    const places = alert === null ? [] : [["target", `here (${placeOf(alert)})`], ...(alert.node === "" ? [] : [["node", `all of ${alert.host}`]]), ["all", "everywhere"]];
    await this.asked({
      title: "Silence",
      lead: "Matching alerts stay visible; no notifications are sent and no rule acts on them until the silence ends.",
      fields: [
        choiceField("rule", "Rule", [["", "any rule"], ...this.rules.map((one) => [one.rule.id, one.rule.title])], rule),
        ...(alert === null ? [textField("node", "Node", { placeholder: "any node" }, "Host name."), textField("user", "User", { placeholder: "any user" }, "Only where nobody else has tasks.")] : [choiceField("reach", "Where", places, "target")]),
        choiceField("lasts", "For", SILENCES, "14400"),
        textField("because", "Reason", { required: "", maxlength: "400", placeholder: "moving racks" }),
      ],
      verb: "Silence",
      submit: (given) => send("POST", "silences", {
        until: Date.now() / 1000 + Number(given.get("lasts")), because: given.get("because").trim(), rule: given.get("rule"),
        ...(alert === null ? { node: given.get("node").trim(), user: given.get("user").trim() } : { node: given.get("reach") === "node" ? alert.node : "", target: given.get("reach") === "target" ? alert.target : "" }),
      }),
    });
  }

  async endSilence(one) {
    await this.asked({ title: "End this silence?", lead: `${matchersOf(one, this.names)}: ${one.because}`, verb: "End silence", submit: () => send("DELETE", `silences/${encodeURIComponent(one.id)}`) });
  }
}

/** Alerts that are over, at targets that are silenced: they know what these are called. */
async function silencedBefore(open, pending, _rules, { items }) {
  const known = new Set([...open.items, ...pending.items].map(({ target }) => target));
  const targets = [...new Set(items.filter(isInForce).map(({ target }) => target))].filter((target) => target !== "" && !known.has(target));
  return targets.length === 0 ? { items: [] } : look(`alerts?state=ended&targets=${targets.slice(0, MOST_TARGETS).map(encodeURIComponent).join(",")}`);
}

const isInForce = ({ ended_at: endedAt, until }) => endedAt === null && until > Date.now() / 1000;

function columnsOf(name) {
  if (name === "pending") return [{ head: "Since", draw: timeCell(({ since }) => since) }, { head: "Fires", draw: drawDue }];
  return [{ head: "Since", draw: timeCell(({ since }) => since) }, { head: "Next", draw: drawLadder }, { head: "Blocked by", draw: drawHolds }];
}

// Whose rule asks a person to let it act: they stand first, then the worst, then the newest.
const waitsFor = ({ ladder }) => Boolean(ladder?.confirm);

const byUse = (a, b) => b.firing + b.resolving - (a.firing + a.resolving) || b.pending - a.pending || a.rule.title.localeCompare(b.rule.title);
