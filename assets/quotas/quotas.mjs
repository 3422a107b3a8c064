// The Quotas page: what each gives, who holds how much of it, and whether it is really in force.

import { look, send } from "../parts/api.mjs";
import { choiceField, sentence, tell, textField } from "../parts/dialog.mjs";
import { Lines, button, byId, keepFocus, make, redraw, say, sayOrHide, settle, show } from "../parts/dom.mjs";
import { DraftCheck } from "../parts/draft_check.mjs";
import { amount, moment, plural, when } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { change, onlyOf } from "../parts/password_prompt.mjs";
import { LIMITS, barOf, useWords } from "./quota_bars.mjs";
import { openPast } from "./quota_past.mjs";
import { nameTab } from "../parts/tab.mjs";
import { toast } from "../parts/toast.mjs";

const EVERY_MS = 3_000;
const TYPED_MS = 400;
const TONES = { observe: "", warn: "stale", act: "lost" };
const MODES = [["observe", "observe: only show who is over"], ["warn", "warn: also notify the owner"], ["act", "act: notify, then end a task"]];
const COUNTS = [["each", "separately for each owner"], ["together", "as one total"]];
const PERS = [["day", "per day"], ["week", "per week"]];
const OFFLINES = [["wait", "wait for the hub"], ["allow", "may end tasks for 24 h"]];
const PRIORITIES = [["0", "0: ended last"], ["1", "1"], ["2", "2"], ["3", "3"], ["4", "4: ended first"]];
const MEANS = { ladder: "Ladder (in use)", memory_limit: "Memory limits of the driver (not used yet)", hami: "HAMi-core (not used yet)", mps: "MPS limits (set on the Node page, new clients only)", mig: "MIG (not used yet)" };
const IN_FORCE = { observe: "usage is counted, no notifications", warn: "owners are notified, no tasks are ended", act: "owners are notified, then tasks are ended; allocations are not prevented" };

export default class QuotasPage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("quotas-problem") });
    this.root = root;
    this.cards = new Lines(byId("quotas-place"), ({ quota }) => quota.id, (item) => this.build(item));
    byId("quotas-new").addEventListener("click", () => this.edit(null));
    this.begin();
  }

  async begin() {
    await this.meet();
    show(byId("quotas-new"), this.may("admin"));
    this.look();
  }

  ask() {
    return look("quotas");
  }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  take({ items, mechanisms }) {
    const over = new Set(items.flatMap(({ balances }) => balances.filter((one) => one.is_over).map(({ holder }) => holder))).size;
    const weak = items.filter((one) => one.in_force < one.wanted).length;
    const idle = items.filter((one) => one.wanted === 0 && limitsOf(one.quota).length > 0).length;
    say(byId("quotas-words"), items.length === 0 ? "No quotas." : [
      plural(items.length, "quota"), over === 0 ? "no one over" : `${amount(over)} over`,
      weak > 0 ? `${amount(weak)} not in force everywhere` : idle === items.length ? "" : idle === 0 ? "all in force" : "all others in force",
      idle === 0 ? "" : `${amount(idle)} matching no node`].filter(Boolean).join(" · "));
    nameTab(over === 0 ? "Quotas" : `(${amount(over)}) Quotas`);
    const none = this.may("admin") ? "No quotas yet. A quota limits how many GPUs, how much memory or how many GPU-hours an owner may use. Start with mode “observe”: it shows who would be over, and does nothing else." : "No quotas yet. An admin can add one.";
    sayOrHide(byId("quotas-none"), items.length === 0 ? none : "");
    this.cards.draw([...items].sort(byNeed));
    settle(this.root);
    if (!this.hasArrived) byId(`quota-${location.hash.slice(1)}`)?.scrollIntoView({ block: "start" });
    this.hasArrived = true;
    this.tellMeans(mechanisms);
  }

  /** Each mechanism, where it is there, and why not elsewhere. */
  tellMeans(mechanisms) {
    show(byId("quotas-means"), mechanisms.length > 0);
    redraw(byId("quotas-means-list"), mechanisms, () => mechanisms.map(({ name, there, not_there: notThere }) => make("li", {},
      make("strong", {}, MEANS[name] ?? name), ": ",
      there.length === 0 ? "on no node" : `on ${plural(there.length, "node")} (${there[0].host}: ${there[0].proof})`,
      Object.keys(notThere).length === 0 ? "." : `; not on others: ${Object.entries(notThere).map(([why, count]) => `${why} (${plural(count, "node")})`).join("; ")}.`)));
  }

  build({ quota: { id } }) {
    const act = (word, does) => button(word, does, { "aria-label": `${word} ${id}` });
    const card = { item: null, mode: make("span", { class: "pill" }), meaning: make("p", { class: "quota-meaning" }), summary: make("summary", {}), nodes: make("ul", {}) };
    card.uses = make("ul", { class: "quota-uses", "aria-label": `Use of ${id}` });
    card.none = make("p", { class: "quota-none" }, "No usage at the moment.");
    card.root = make("li", { class: "quota", id: `quota-${id}` },
      make("div", { class: "quota-head" }, make("h2", {}, id), card.mode,
        make("div", { class: "quota-acts" },
          this.may("admin") ? act("Edit", () => this.edit(card.item.quota, card.item.generation)) : null,
          this.may("operator") ? act("History", () => this.history(id)) : null,
          this.may("admin") ? act("Remove", () => this.remove(card.item.quota)) : null)),
      card.meaning, make("details", { class: "quota-force" }, card.summary, card.nodes), card.uses, card.none);
    card.draw = (item) => draw(card, item);
    return card;
  }

  async edit(quota, generation = null) {
    const outcome = make("output", { class: "quota-check", role: "status", tabindex: "0", "aria-label": "Who would be over now" }, make("p", {}, "Owners who would be over appear here as you type."));
    await this.asked({
      title: quota === null ? "New quota" : `Edit ${quota.id}`,
      lead: "If several quotas match, the most specific one applies: container, then user, group, everyone; and the narrower scope.",
      fields: [outcome, make("div", { class: "quota-fields" }, ...fieldsOf(quota))], verb: quota === null ? "Save quota" : "Save changes",
      submit: async (given) => {
        const wanted = quotaOf(given, quota);
        const { id, ...fields } = wanted;
        const { problems } = await send("POST", "quota-checks", { quota: wanted, is_new: quota === null });
        if (problems.length > 0) throw new Error(problems.map(problemWords).join(" "));
        return change("PUT", `quotas/${encodeURIComponent(id)}`, fields, onlyOf(generation));
      },
      opened: (form) => watch(form, quota, outcome),
    });
  }

  async remove({ id, ...before }) {
    const path = `quotas/${encodeURIComponent(id)}`;
    const lead = "The limit ends within seconds on every connected node. Earlier versions are kept.";
    const isDone = await this.sure(`Remove ${id}?`, "Remove", lead, () => change("DELETE", path));
    if (isDone !== null) toast(`${id} removed.`, async () => { await change("PUT", path, before, onlyOf(null)); this.look(); });
  }

  async history(id) {
    const list = make("ul", { class: "quota-versions", tabindex: "0", "aria-label": "Versions" }, make("li", {}, "Loading …"));
    tell(`History of ${id}`, list);
    try {
      const { items } = await look(`quotas/${encodeURIComponent(id)}/versions`);
      list.replaceChildren(...items.map((one) => make("li", {}, one.is_there ? `${one.meaning} (${one.quota.mode})` : "removed",
        make("small", {}, `${one.by}, ${moment(one.set_at)} · generation ${one.generation}${one.quota.because && one.is_there ? ` · ${one.quota.because}` : ""}`))));
    } catch (error) {
      list.replaceChildren(make("li", {}, sentence(error.message)));
    }
  }
}

function draw(card, item) {
  card.item = item;
  const { quota } = item;
  say(card.mode, quota.mode);
  card.mode.className = `pill ${TONES[quota.mode]}`;
  say(card.meaning, `${meaningWords(quota.subject, item.meaning)}${quota.because === "" ? "" : ` ${sentence(quota.because)}`}`);
  say(card.summary, forceWords(item));
  const { nodes } = item;
  redraw(card.nodes, [nodes, quota.mode, item.set_at, item.by], () => [
    ...nodes.map((one) => make("li", {}, make("strong", {}, one.host), ` ${one.is_in_force ? `in force (${IN_FORCE[quota.mode]})` : one.is_applied ? "applied, not in force" : "wanted, not applied"}: ${one.proof}`)),
    ...(item.wanted > nodes.length ? [make("li", {}, `and ${amount(item.wanted - nodes.length)} more`)] : []),
    make("li", {}, `Set by ${item.by} ${when(item.set_at)}; generation ${item.generation}.`)]);
  keepFocus(card.uses, () => redraw(card.uses, item.balances, () => item.balances.map(useOf)));
  show(card.uses, item.balances.length > 0);
  show(card.none, item.balances.length === 0 && limitsOf(quota).length > 0);
}

/** A user's name stays as it is written. */
const meaningWords = (subject, meaning) => (subject.trim().startsWith("user:") ? `${meaning}.` : sentence(meaning));

function forceWords({ wanted, applied, in_force: inForce, quota }) {
  if (limitsOf(quota).length === 0) return `Gives the priority ${quota.priority}; it limits nothing.`;
  if (wanted === 0) return "Applies to no node you can see.";
  if (inForce === wanted) return `In force on ${wanted === 1 ? "the node" : `all ${amount(wanted)} nodes`}`;
  return `Wanted on ${plural(wanted, "node")}, applied on ${amount(applied)}, in force on ${amount(inForce)}`;
}

function useOf(one) {
  const [first] = one.offenders;
  return make("li", {}, make("button", { type: "button", class: "as-link holder", title: "Usage over the last hours, day or week", "data-past": `${one.limit} ${one.holder}`, onclick: () => openPast(one) }, one.holder), barOf(one),
    make("span", { class: "numbers" }, useWords(one), one.is_over ? make("span", { class: "pill lost over" }, "over") : null),
    !one.is_over ? null : make("span", { class: "next" }, first === undefined ? "None of its tasks may be ended." : `First to be ended: ${first.user ?? "?"} on ${first.host}, priority ${first.priority}${one.offenders.length > 1 ? `; ${amount(one.offenders.length - 1)} more would follow` : ""}.${first.ladder === "" ? "" : ` ${sentence(first.ladder)}`}`));
}

const limitsOf = (quota) => Object.keys(LIMITS).filter((limit) => quota[limit] !== null);
const byNeed = (a, b) => b.over - a.over || a.quota.id.localeCompare(b.quota.id);

function fieldsOf(quota) {
  const text = (name, label, hint, traits = {}, value = quota?.[name] ?? traits.value ?? "") => {
    const made = textField(name, label, traits, hint);
    made.querySelector("input").value = value === null ? "" : String(value);
    return made;
  };
  return [
    ...(quota === null ? [text("id", "Id", "Lower-case letters, digits and dashes.", { required: "", pattern: "[a-z0-9][a-z0-9\\-]{0,63}", maxlength: "64", placeholder: "everyone" })] : []),
    text("subject", "Applies to", "user:NAME, group:NAME, container:NAME, slurm:JOB, k8s:NAMESPACE, or * for everyone.", { required: "", value: "*" }),
    choiceField("count", "Counted per", COUNTS, quota?.count ?? "each"),
    text("scope", "Scope", "fleet, group:NAME, node:NAME or gpu:UUID.", { required: "", value: "fleet" }),
    text("gpus", "Max. GPUs", "Empty: no limit.", { inputmode: "numeric", placeholder: "4" }),
    text("mem_bytes", "Max. memory", "Such as 40GiB.", { placeholder: "40GiB" }, inUnits(quota?.mem_bytes ?? null, SIZES)),
    text("gpu_hours", "Max. GPU-hours", null, { inputmode: "decimal", placeholder: "100" }),
    choiceField("per", "GPU-hours are counted", PERS, quota?.per ?? "day"),
    text("max_age_s", "Max. task age", "Such as 12h or 7d.", { placeholder: "12h" }, inUnits(quota?.max_age_s ?? null, SPANS)),
    choiceField("mode", "Mode", MODES, quota?.mode ?? "observe"),
    ...(isUsual(quota) ? [
      text("again", "Second notification after", "Only in mode warn or act.", { required: "" }, inUnits(quota?.ladder[1].after_s ?? 600, SPANS)),
      text("end", "End the task after another", "Only in mode act.", { required: "" }, inUnits(quota?.ladder[2].after_s ?? 600, SPANS)),
    ] : []),
    choiceField("priority", "Priority", PRIORITIES, String(quota?.priority ?? 2), "Decides whose tasks are ended first when several owners share one total."),
    choiceField("offline", "When the hub is unreachable", OFFLINES, quota?.offline ?? "wait"),
    text("because", "Reason", "Shown to the owners it applies to.", { maxlength: "400" }),
  ];
}

/** Told, told again, ended; another ladder, set elsewhere, is kept as it is. */
const isUsual = (quota) => quota === null || quota.ladder.map((rung) => rung.do).join(" ") === "tell tell end";

const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["B", 1]];
const SPANS = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];

function inUnits(value, units) {
  if (value === null) return "";
  const [unit, size] = units.find(([, each]) => value >= each && value % each === 0) ?? units.at(-1);
  return `${value / size}${unit}`;
}

function quotaOf(given, quota) {
  const text = (name) => String(given.get(name) ?? "").trim();
  const number = (name) => (text(name) === "" ? null : Number.isFinite(Number(text(name))) ? Number(text(name)) : text(name));
  return {
    id: quota?.id ?? text("id"), subject: text("subject"), count: text("count"), scope: text("scope"), gpus: number("gpus"),
    mem_bytes: text("mem_bytes") || null, gpu_hours: number("gpu_hours"), per: text("per"), max_age_s: text("max_age_s") || null,
    mode: text("mode"), priority: Number(text("priority")), offline: text("offline"), because: text("because"),
    ladder: isUsual(quota) ? [{ do: "tell" }, { do: "tell", after_s: text("again") }, { do: "end", after_s: text("end") }] : quota.ladder,
  };
}

function watch(form, quota, outcome) {
  const check = new DraftCheck(TYPED_MS, () => {
    const wanted = quotaOf(new FormData(form), quota);
    return send("POST", "quota-checks", { quota: { ...wanted, id: wanted.id || "new" }, is_new: quota === null && wanted.id !== "" });
  }, (found) => drawCheck(outcome, found, form));
  form.addEventListener("input", () => check.soon());
  check.look();
}

const LABELS = { id: "Id", subject: "Applies to", count: "Counted per", scope: "Scope", gpus: "Max. GPUs", mem_bytes: "Max. memory", gpu_hours: "Max. GPU-hours", max_age_s: "Max. task age", mode: "Mode", ladder: "Notification and end" };

const problemWords = ({ field, message }) => sentence(`${field === "" ? "" : `${LABELS[field.split("[")[0]] ?? field}: `}${message}`);

function drawCheck(outcome, { problems, meaning, holders, over, nodes }, form) {
  outcome.classList.toggle("bad", problems.length > 0);
  const wrong = new Set(problems.map(({ field }) => field));
  for (const input of form.querySelectorAll("input[name]")) {
    if (wrong.has(input.name)) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  const lines = problems.length > 0 ? problems.map(problemWords)
    : [meaningWords(form.elements.subject.value, meaning), nodes === 0 ? "Matches no node: nothing has the name under “Scope”." : over.length === 0 ? `No one would be over now${holders > 0 ? ` (${plural(holders, "owner")} with usage)` : ""}.` : `${amount(over.length)} would be over now:`,
      ...over.slice(0, 10).map((one) => `${one.sentence}${one.offenders.length > 0 ? ` (${plural(one.offenders.length, "job")} would be ended, the first on ${one.offenders[0].host})` : ""}`)];
  outcome.replaceChildren(...lines.map((line) => make("p", {}, line)));
}
