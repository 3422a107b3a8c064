// The Quotas page: what each gives, who holds how much of it, and whether it is really in force.

import { look, send } from "../parts/api.mjs";
import { choiceField, sentence, tell, textField } from "../parts/dialog.mjs";
import { Lines, button, byId, keepFocus, make, redraw, say, sayOrHide, show } from "../parts/dom.mjs";
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
const MODES = [["observe", "observe: say who is over"], ["warn", "warn: tell them, too"], ["act", "act: tell, then end a task"]];
const COUNTS = [["each", "for each of them"], ["together", "for all of them in one sum"]];
const PERS = [["day", "per day"], ["week", "per week"]];
const OFFLINES = [["wait", "wait for the hub"], ["allow", "may end tasks for 24 h"]];
const PRIORITIES = [["0", "0: goes last"], ["1", "1"], ["2", "2"], ["3", "3"], ["4", "4: goes first"]];
const MEANS = { ladder: "Ladder (in use)", memory_limit: "Memory limits of the driver (not used yet)", hami: "HAMi-core (not used yet)", mps: "MPS limits (set on the node's page, of new clients only)", mig: "MIG (not used yet)" };
const IN_FORCE = { observe: "counted, and nobody is told", warn: "owners are told, and nothing is ended", act: "owners are told, then tasks are ended; nothing stops an allocation" };

export default class QuotasPage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("quotas-problem") });
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

  take({ items, mechanisms }) {
    const over = new Set(items.flatMap(({ balances }) => balances.filter((one) => one.is_over).map(({ holder }) => holder))).size;
    const weak = items.filter((one) => one.in_force < one.wanted).length;
    const idle = items.filter((one) => one.wanted === 0 && limitsOf(one.quota).length > 0).length;
    say(byId("quotas-words"), items.length === 0 ? "Nobody is limited." : [
      plural(items.length, "quota"), over === 0 ? "nobody is over" : `${amount(over)} over`,
      weak > 0 ? `${amount(weak)} not in force everywhere` : idle === items.length ? "" : idle === 0 ? "all in force" : "all others in force",
      idle === 0 ? "" : `${amount(idle)} about no node`].filter(Boolean).join(" · "));
    nameTab(over === 0 ? "Quotas" : `(${amount(over)}) Quotas`);
    const none = this.may("admin") ? "There is no quota. A quota says how many GPUs, how much memory or how many hours an owner may hold. Begin with one that only observes: it shows at once who would be over." : "There is no quota here. An admin can set one.";
    sayOrHide(byId("quotas-none"), items.length === 0 ? none : "");
    this.cards.draw([...items].sort(byNeed));
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
    card.none = make("p", { class: "quota-none" }, "Nobody whom it is about holds anything now.");
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
    const outcome = make("output", { class: "quota-check", role: "status", tabindex: "0", "aria-label": "Who would be over it now" }, make("p", {}, "Who would be over it now stands here while you write."));
    await this.asked({
      title: quota === null ? "A new quota" : `Change ${quota.id}`,
      lead: "Of several, the most specific one counts: a container before a user, a user before a group, a group before everyone; and the narrower place.",
      fields: [outcome, make("div", { class: "quota-fields" }, ...fieldsOf(quota))], verb: quota === null ? "Set it" : "Keep the change",
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
    const lead = "It limits nobody any more, within seconds on every node that is connected. What it was is kept.";
    const isDone = await this.sure(`Remove ${id}?`, "Remove", lead, () => change("DELETE", path));
    if (isDone !== null) toast(`${id} is removed.`, async () => { await change("PUT", path, before, onlyOf(null)); this.look(); });
  }

  async history(id) {
    const list = make("ul", { class: "quota-versions", tabindex: "0", "aria-label": "Versions" }, make("li", {}, "Loading …"));
    tell(`What ${id} was`, list);
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
  if (wanted === 0) return "No node that you see is concerned.";
  if (inForce === wanted) return `In force on ${wanted === 1 ? "its node" : `all ${amount(wanted)} nodes`}`;
  return `Wanted on ${plural(wanted, "node")}, applied on ${amount(applied)}, in force on ${amount(inForce)}`;
}

function useOf(one) {
  const [first] = one.offenders;
  return make("li", {}, make("button", { type: "button", class: "as-link holder", title: "What it was over the last hours, day or week", "data-past": `${one.limit} ${one.holder}`, onclick: () => openPast(one) }, one.holder), barOf(one),
    make("span", { class: "numbers" }, useWords(one), one.is_over ? make("span", { class: "pill lost over" }, "over") : null),
    !one.is_over ? null : make("span", { class: "next" }, first === undefined ? "No task of it may be ended." : `Would go first: ${first.user ?? "?"} on ${first.host}, priority ${first.priority}${one.offenders.length > 1 ? `; ${amount(one.offenders.length - 1)} more after it` : ""}.${first.ladder === "" ? "" : ` ${sentence(first.ladder)}`}`));
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
    ...(quota === null ? [text("id", "Id", "Small letters, digits and dashes.", { required: "", pattern: "[a-z0-9][a-z0-9\\-]{0,63}", maxlength: "64", placeholder: "everyone" })] : []),
    text("subject", "Whose", "user:NAME, group:NAME, container:NAME, slurm:JOB, k8s:NAMESPACE, or * for everyone.", { required: "", value: "*" }),
    choiceField("count", "Counted", COUNTS, quota?.count ?? "each"),
    text("scope", "Where", "fleet, group:NAME, node:NAME or gpu:UUID.", { required: "", value: "fleet" }),
    text("gpus", "GPUs at most", "Empty: any number.", { inputmode: "numeric", placeholder: "4" }),
    text("mem_bytes", "Memory at most", "Such as 40GiB.", { placeholder: "40GiB" }, inUnits(quota?.mem_bytes ?? null, SIZES)),
    text("gpu_hours", "GPU-hours at most", null, { inputmode: "decimal", placeholder: "100" }),
    choiceField("per", "Hours are", PERS, quota?.per ?? "day"),
    text("max_age_s", "A task may run for", "Such as 12h or 7d.", { placeholder: "12h" }, inUnits(quota?.max_age_s ?? null, SPANS)),
    choiceField("mode", "What it does", MODES, quota?.mode ?? "observe"),
    ...(isUsual(quota) ? [
      text("again", "Told again after", "Only where it warns or acts.", { required: "" }, inUnits(quota?.ladder[1].after_s ?? 600, SPANS)),
      text("end", "And ended after that", "Only where it acts.", { required: "" }, inUnits(quota?.ladder[2].after_s ?? 600, SPANS)),
    ] : []),
    choiceField("priority", "Who goes first", PRIORITIES, String(quota?.priority ?? 2), "Of its tasks, beside those of others."),
    choiceField("offline", "A node without a hub", OFFLINES, quota?.offline ?? "wait"),
    text("because", "Because", "Its owners read it.", { maxlength: "400" }),
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

const LABELS = { id: "Id", subject: "Whose", count: "Counted", scope: "Where", gpus: "GPUs at most", mem_bytes: "Memory at most", gpu_hours: "GPU-hours at most", max_age_s: "A task may run for", mode: "What it does", ladder: "Told again, and ended" };

const problemWords = ({ field, message }) => sentence(`${field === "" ? "" : `${LABELS[field.split("[")[0]] ?? field}: `}${message}`);

function drawCheck(outcome, { problems, meaning, holders, over, nodes }, form) {
  outcome.classList.toggle("bad", problems.length > 0);
  const wrong = new Set(problems.map(({ field }) => field));
  for (const input of form.querySelectorAll("input[name]")) {
    if (wrong.has(input.name)) input.setAttribute("aria-invalid", "true");
    else input.removeAttribute("aria-invalid");
  }
  const lines = problems.length > 0 ? problems.map(problemWords)
    : [meaningWords(form.elements.subject.value, meaning), nodes === 0 ? "No node is meant: nothing that there is now is called so under “Where”." : over.length === 0 ? `Nobody would be over it now${holders > 0 ? `, of ${amount(holders)} who hold something of it` : ""}.` : `${amount(over.length)} would be over it now:`,
      ...over.slice(0, 10).map((one) => `${one.sentence}${one.offenders.length > 0 ? ` (${plural(one.offenders.length, "job")} would go, the first on ${one.offenders[0].host})` : ""}`)];
  outcome.replaceChildren(...lines.map((line) => make("p", {}, line)));
}
