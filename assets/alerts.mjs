// The Alerts page: what fires, what fired, the rules behind it, and what is silenced.

import { isAdmin, me } from "./account.mjs";
import { look, send } from "./api.mjs";
import { ask, choiceField, sentence, textField } from "./dialog.mjs";
import { byId, make, say, show } from "./dom.mjs";
import { amount, moment, plural, when } from "./format.mjs";
import { change } from "./fresh.mjs";
import { Rows, parts } from "./rows.mjs";
import { nameTab } from "./tab.mjs";

const EVERY_MS = 5_000;
const SOON_MS = 250;
const TYPED_MS = 400;
const TONES = { crit: "lost", warn: "stale", info: "" };
const SEVERITIES = [["info", "info"], ["warn", "warning"], ["crit", "critical"]];
const SILENCES = [["3600", "1 hour"], ["14400", "4 hours"], ["86400", "a day"], ["604800", "a week"], ["2592000", "30 days"]];
const ABOUT = [["gpu", "a GPU"], ["task", "a task"], ["job", "a job"], ["node", "a node"], ["owner", "a user"], ["fleet", "the whole fleet"]];
const NOT_KEPT = ["version", "number"];

export class AlertsPage {
  constructor(root, live) {
    Object.assign(this, { root, person: null, rules: [], firing: [] });
    this.tables = { firing: this.firingRows(), silences: this.silenceRows(), rules: this.ruleRows(), ended: this.endedRows() };
    for (const [name, rows] of Object.entries(this.tables)) byId(`alerts-${name}`).append(rows.root);
    byId("alerts-silence").addEventListener("click", () => this.silence({}));
    byId("alerts-new").addEventListener("click", () => this.edit(null));
    live.addEventListener("alert", () => this.soon());
    live.addEventListener("state", () => { if (live.state === "live") this.look(); });
    document.addEventListener("visibilitychange", () => this.look());
    this.begin();
  }

  async begin() {
    this.person = await me().catch(() => null);
    show(byId("alerts-new"), this.isAdmin);
    show(byId("alerts-silence"), this.isOperator);
    this.look();
  }

  get isAdmin() { return this.person !== null && isAdmin(this.person); }

  get isOperator() { return this.isAdmin || this.person?.role === "operator"; }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), SOON_MS);
  }

  async look() {
    clearTimeout(this.timer);
    if (document.hidden) return;
    try {
      const [firing, ended, rules, silences] = await Promise.all(["alerts", "alerts?state=ended", "rules", "silences"].map(look));
      this.take(firing.items, ended.items, rules.items, silences.items);
      show(byId("alerts-problem"), false);
    } catch (error) {
      say(byId("alerts-problem"), `This page is not up to date: ${sentence(error.message)}`);
      show(byId("alerts-problem"), true);
      for (const rows of Object.values(this.tables)) rows.fail("Nothing is known yet.");
    }
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  take(firing, ended, rules, silences) {
    Object.assign(this, { firing, rules });
    this.tables.firing.update(firing);
    this.tables.ended.update(ended.slice(0, 100));
    this.tables.rules.update([...rules].sort(byUse));
    this.tables.silences.update(silences.filter(({ is_on: isOn }) => isOn));
    const pending = rules.reduce((sum, one) => sum + one.pending, 0);
    say(byId("alerts-words"), `${firing.length === 0 ? "Nothing fires" : `${plural(firing.length, "alert")} ${firing.length === 1 ? "fires" : "fire"}`}${pending > 0 ? `, ${amount(pending)} pending` : ""}. ${plural(rules.length, "rule")} watched.`);
    nameTab(firing.length === 0 ? "Alerts" : `(${amount(firing.length)}) Alerts`);
  }

  firingRows() {
    return new Rows({
      label: "Alerts that fire", key: ({ id }) => id, empty: "Nothing fires. When a rule has been true of a Gpu for long enough, it stands here.",
      columns: [
        { head: "Alert", draw: drawAlert },
        { head: "Where", draw: drawTarget },
        { head: "Value", text: (alert) => this.valueOf(alert) },
        { head: "Since", draw: drawTime(({ since }) => since) },
        { head: "Held", text: ({ holds, state }) => [state === "resolving" ? "at rest again" : "", ...holds].filter(Boolean).join("; ") || "–" },
      ],
      actions: (alert) => (this.isOperator ? [["Silence", () => this.silence(alert), { "aria-label": `Silence ${alert.title} at ${placeOf(alert)}` }]] : []),
    });
  }

  endedRows() {
    return new Rows({
      label: "Alerts that are over", key: ({ id }) => id, empty: "No alert of the last seven days is over.",
      columns: [
        { head: "Alert", draw: drawAlert },
        { head: "Where", draw: drawTarget },
        { head: "Value", text: (alert) => this.valueOf(alert) },
        { head: "Fired", draw: drawTime(({ fired_at: at }) => at) },
        { head: "Over", draw: drawTime(({ ended_at: at }) => at) },
        { head: "Why", text: ({ why }) => why },
      ],
    });
  }

  ruleRows() {
    return new Rows({
      label: "Rules", key: ({ rule }) => rule.id, empty: "There is no rule. An admin writes one with “New rule”.",
      columns: [
        { head: "Rule", draw: (cell, { rule }) => parts(cell, ["span", `pill ${TONES[rule.severity]}`, rule.severity], ["strong", "name", rule.title], ["small", "", rule.id]) },
        { head: "True when", draw: (cell, { rule }) => parts(cell, ["code", "", `${rule.signal} ${rule.fire}`], ["small", "", [...rule.where, `for ${rule.for}`, rule.scope === "*" ? "the whole fleet" : rule.scope].join(" · ")]) },
        { head: "Now", draw: (cell, one) => parts(cell, ...nowOf(one)) },
        { head: "Mode", text: ({ mode }) => mode.replaceAll("_", " ") },
      ],
      actions: ({ rule }) => [[this.isAdmin ? "Edit" : "Show", () => this.edit(rule), { "aria-label": `${this.isAdmin ? "Edit" : "Show"} ${rule.title}` }],
        ...(this.isAdmin ? [["Remove", () => this.remove(rule), { "aria-label": `Remove ${rule.title}` }]] : [])],
    });
  }

  silenceRows() {
    return new Rows({
      label: "Silences", key: ({ id }) => id, empty: "Nothing is silenced.",
      columns: [
        { head: "What", text: (one) => matchersOf(one) },
        { head: "Because", text: ({ because }) => because },
        { head: "By", text: ({ by }) => by },
        { head: "Until", draw: drawTime(({ until }) => until) },
      ],
      actions: (one) => (this.isOperator ? [["End it", () => this.endSilence(one), { "aria-label": `End the silence of ${matchersOf(one)}` }]] : []),
    });
  }

  valueOf({ rule, value }) {
    if (value === null) return "–";
    const signal = this.rules.find((one) => one.rule.id === rule)?.rule.signal ?? "";
    const text = Math.abs(value) >= 1e6 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
    return /_pct/.test(signal) && !/\//.test(signal) ? `${text} %` : /(^|\W)(temp|mem_temp)\w*_c/.test(signal) ? `${text} °C` : text;
  }

  async edit(rule) {
    const outcome = make("output", { class: "rule-check", role: "status" }, "");
    const fields = ruleFields(rule);
    const made = await ask({
      title: rule === null ? "A new rule" : this.isAdmin ? rule.title : `${rule.title} (an admin may change it)`,
      lead: "It only observes. Whom it is true of now stands below while you write.",
      fields: [make("div", { class: "rule-fields" }, ...fields), outcome], verb: rule === null ? "Keep it" : "Keep the change",
      submit: async (given) => {
        if (!this.isAdmin) throw new Error("An admin may change rules.");
        const wanted = ruleOf(given, rule);
        return change("PUT", `rules/${encodeURIComponent(wanted.id)}`, wanted);
      },
      opened: (form) => watchRule(form, rule, outcome),
    });
    if (made !== null) this.look();
  }

  async remove(rule) {
    const isDone = await ask({
      title: `Remove “${rule.title}”?`, lead: "It is not watched any more, and its alerts are over. What it was is kept.", verb: "Remove", tone: "bad",
      submit: () => change("DELETE", `rules/${encodeURIComponent(rule.id)}`),
    });
    if (isDone !== null) this.look();
  }

  async silence({ rule = "", node = "", host = "", target = "", place = "" }) {
    const isAimed = target !== "";
    const isDone = await ask({
      title: isAimed ? `Silence this at ${host} · GPU ${place}` : "Silence",
      lead: "Matching alerts stay visible here, and tell nobody. A silence has an end.",
      fields: [
        choiceField("rule", "Rule", [["", "any rule"], ...this.rules.map((one) => [one.rule.id, one.rule.title])], rule),
        ...(isAimed ? [choiceField("reach", "Where", [["target", `this Gpu (${host} · GPU ${place})`], ["node", `all of ${host}`], ["all", "everywhere"]], "target")] : [textField("node", "Node", { placeholder: "any node" }, "Its host name.")]),
        choiceField("lasts", "For", SILENCES, "14400"),
        textField("because", "Because", { required: "", maxlength: "400", placeholder: "moving racks" }),
      ],
      verb: "Silence",
      submit: (given) => send("POST", "silences", {
        until: Date.now() / 1000 + Number(given.get("lasts")), because: given.get("because").trim(), rule: given.get("rule"),
        node: isAimed ? (given.get("reach") === "node" ? node : "") : given.get("node").trim(),
        target: isAimed && given.get("reach") === "target" ? target : "",
      }),
    });
    if (isDone !== null) this.look();
  }

  async endSilence(one) {
    const isDone = await ask({ title: "End this silence?", lead: `${matchersOf(one)}: ${one.because}`, verb: "End it", submit: () => send("DELETE", `silences/${encodeURIComponent(one.id)}`) });
    if (isDone !== null) this.look();
  }
}

function ruleFields(rule) {
  const text = (name, label, hint, traits = {}) => {
    const made = textField(name, label, traits, hint);
    made.querySelector("input").value = rule?.[name] ?? traits.value ?? "";
    return made;
  };
  return [
    ...(rule === null ? [text("id", "Id", "Small letters, digits and dashes.", { required: "", pattern: "[a-z0-9][a-z0-9\\-]{0,63}", maxlength: "64", placeholder: "hot-at-night" })] : []),
    text("title", "Title", null, { required: "", maxlength: "400", placeholder: "Hot, close to slowing down" }),
    choiceField("of", "About", ABOUT, rule?.of ?? "gpu"),
    text("signal", "Watched", "A metric, or such as avg(util_pct, 5m) or power_w / power_limit_w.", { required: "", placeholder: "temp_c" }),
    text("fire", "Fires when it is", null, { required: "", placeholder: ">= 85" }),
    text("clear", "Is over when it is", "Empty: a little further back.", { placeholder: "< 80" }),
    text("for", "For at least", null, { required: "", value: "2m", placeholder: "2m" }),
    text("scope", "Of whom", "The filter language; * is the whole fleet.", { required: "", value: "*" }),
    text("where", "And only where", "Separated by commas, such as mem_used_bytes >= 1GiB.", {}),
    choiceField("severity", "Severity", SEVERITIES, rule?.severity ?? "warn"),
    text("runbook", "What to do", null, { maxlength: "4000" }),
  ];
}

function ruleOf(given, rule) {
  const fields = Object.fromEntries(["title", "of", "signal", "fire", "clear", "for", "scope", "severity", "runbook"].map((name) => [name, String(given.get(name) ?? "").trim()]));
  const where = String(given.get("where") ?? "").split(",").map((one) => one.trim()).filter(Boolean);
  const kept = Object.fromEntries(Object.entries(rule ?? {}).filter(([name]) => !NOT_KEPT.includes(name)));
  return { ...kept, ...fields, where, id: rule?.id ?? String(given.get("id") ?? "").trim() };
}

function watchRule(form, rule, outcome) {
  let timer = 0;
  let number = 0;
  const check = async () => {
    const mine = (number += 1);
    const wanted = ruleOf(new FormData(form), rule);
    try {
      const found = await send("POST", "rule-checks", { rule: { ...wanted, id: wanted.id || "new" } });
      if (mine === number) drawCheck(outcome, found, wanted.of);
    } catch (error) {
      if (mine === number) drawCheck(outcome, { problems: [{ field: "", message: error.status === 403 ? "operators and admins see here whom it is true of" : error.message }] });
    }
  };
  form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, TYPED_MS); });
  if (rule !== null) check();
}

function drawCheck(outcome, { problems, targets, matching }, of = "gpu") {
  const what = of === "gpu" ? "Gpu" : of === "owner" ? "user" : of;
  outcome.classList.toggle("bad", problems.length > 0);
  const lines = problems.length > 0 ? problems.map(({ field, message }) => `${field === "" ? "" : `${field}: `}${message}`)
    : [matching === 0 ? `True of none of ${plural(targets, what)} at this moment.` : `True of ${amount(matching)} of ${plural(targets, what)} at this moment.`];
  outcome.replaceChildren(...lines.map((line) => make("p", {}, line)));
}

function drawAlert(cell, alert) {
  parts(cell, ["span", `pill ${TONES[alert.severity]}`, alert.severity], ["strong", "name", alert.title],
    ["small", "", [alert.rule, alert.comebacks > 0 ? `came back ${plural(alert.comebacks, "time")}` : ""].filter(Boolean).join(" · ")]);
}

function drawTarget(cell, alert) {
  const text = placeOf(alert);
  if (cell.dataset.drawn === text) return;
  cell.dataset.drawn = text;
  cell.replaceChildren(make("a", { href: pageOf(alert) }, text), ...(alert.users.length > 0 ? [make("small", {}, alert.users.slice(0, 3).join(", "))] : []));
}

const drawTime = (of) => (cell, item) => {
  const at = of(item);
  say(cell, when(at));
  cell.title = at === null ? "" : moment(at);
};

const placeOf = ({ of, host, place, users }) => {
  if (of === "fleet") return "the whole fleet";
  if (of === "owner") return users[0] ?? "somebody";
  if (of === "node") return host;
  return `${of === "gpu" ? "" : `a ${of} on `}${host} · GPU ${place}`;
};

function pageOf({ of, node, target, users }) {
  if (of === "gpu") return `/gpu/${encodeURIComponent(target)}`;
  if (of === "task") return `/tasks?task=${encodeURIComponent(target)}`;
  if (of === "node") return `/node/${encodeURIComponent(node)}`;
  return users.length > 0 ? `/tasks?filter=${encodeURIComponent(`user:${users[0]}`)}` : "/";
}

function nowOf({ is_watched: isWatched, why_not: whyNot, targets, pending, firing, resolving, no_data: noData, cannot }) {
  if (!isWatched || whyNot !== "") return [["span", "pill stale", "not watched"], ["small", "", whyNot]];
  const pieces = [[firing + resolving, "firing", "pill lost"], [pending, "pending", "pill stale"]].filter(([count]) => count > 0).map(([count, word, tone]) => ["span", tone, `${amount(count)} ${word}`]);
  const quiet = [noData > 0 ? `${amount(noData)} without data` : "", cannot > 0 ? `${amount(cannot)} cannot be told` : ""].filter(Boolean).join(", ");
  return [...(pieces.length > 0 ? pieces : [["span", "pill ok", "quiet"]]), ["small", "", [`of ${amount(targets)}`, quiet].filter(Boolean).join(", ")]];
}

const byUse = (a, b) => b.firing + b.resolving - (a.firing + a.resolving) || b.pending - a.pending || a.rule.title.localeCompare(b.rule.title);

function matchersOf({ rule, host, target, user }) {
  return [rule && `rule ${rule}`, host && `node ${host}`, target && `Gpu ${target}`, user && `user ${user}`].filter(Boolean).join(", ");
}
