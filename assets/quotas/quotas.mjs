// What somebody writes on the Quotas page, and looks up of a holder's past; the rest the hub writes
// (dashboard/pages/quotas.py).

import { send } from "../parts/api.mjs";
import { ask, choiceField, sentence, tell, textField } from "../parts/dialog.mjs";
import { byId, make } from "../parts/dom.mjs";
import { DraftCheck } from "../parts/draft_check.mjs";
import { amount, plural } from "../parts/format.mjs";
import { change, onlyOf } from "../parts/password_prompt.mjs";
import ReadPage from "../reading/read_page.mjs";
import { openPast } from "./quota_past.mjs";

const TYPED_MS = 400;
const MODES = [["observe", "observe: only show who is over"], ["warn", "warn: also notify the owner"], ["act", "act: notify, then end a task"]];
const COUNTS = [["each", "separately for each owner"], ["together", "as one total"]];
const PERS = [["day", "per day"], ["week", "per week"]];
const PRIORITIES = [["0", "0: ended last"], ["1", "1"], ["2", "2"], ["3", "3"], ["4", "4: ended first"]];

export default class QuotasPage extends ReadPage {
  onClick(event) {
    const { edit, past, versions } = event.target.closest("[data-edit], [data-past], [data-versions]")?.dataset ?? {};
    if (edit !== undefined) this.edit(JSON.parse(edit));
    else if (past !== undefined) openPast(JSON.parse(past));
    else if (versions !== undefined) this.openVersions(versions);
    else super.onClick(event);
  }

  /** A link from a node leads to a quota. */
  take(answer) {
    super.take(answer);
    if (!this.hasArrived) byId(`quota-${location.hash.slice(1)}`)?.scrollIntoView({ block: "start" });
    this.hasArrived = true;
  }

  async edit({ quota, generation }) {
    const outcome = make("output", { class: "quota-check", role: "status", tabindex: "0", "aria-label": "Who would be over now" }, make("p", {}, "Owners who would be over appear here as you type."));
    await ask({
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
    await this.look();
  }

  /** The hub fills the list with its next answer. */
  openVersions(id) {
    tell(`History of ${id}`, make("ul", { id: "quota-versions", class: "quota-versions", tabindex: "0", "aria-label": "Versions" }, make("li", {}, "Loading …")));
    this.choose({ versions: id }, false);
  }
}

/** A user's name stays as it is written. */
const meaningWords = (subject, meaning) => (subject.trim().startsWith("user:") ? `${meaning}.` : sentence(meaning));

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
    mode: text("mode"), priority: Number(text("priority")), because: text("because"),
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
