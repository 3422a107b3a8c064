// What an act would hit, as the node saw it: one card for each job.

import { memory, targetWords } from "./action_words.mjs";
import { factLines, make } from "../parts/dom.mjs";
import { age, moment, plural } from "../parts/format.mjs";

const MOST_LINES = 12;

export function itemCard(item, asked) {
  if (item.changes?.length > 0) return settingCard(item, asked);
  return make("article", { class: `act-item ${item.refusals.length > 0 ? "refused" : ""}`, "data-job": item.job_id, "data-tasks": item.task_ids.join(" "), "aria-label": targetWords(item) },
    make("header", {}, make("strong", {}, item.owner ?? "owner unknown"), make("span", { class: "act-host" }, item.host),
      ...(item.kind?.startsWith("mps") ? [make("span", { class: "pill stale" }, "MPS")] : []),
      ...(item.manager === null ? [] : [make("span", { class: "pill" }, item.manager)])),
    make("code", { class: "act-command" }, item.command ?? "command not known"),
    ...refusals(item), ...kept(item),
    facts(item), processes(item, asked), bystanders(item),
    ...item.warnings.map((words) => make("p", { class: "act-warning" }, words)));
}

function settingCard(item, asked) {
  const rows = item.changes.map(({ what, before, after }) => [what, `${before} → `, make("strong", {}, after)]);
  return make("article", { class: `act-item ${item.refusals.length > 0 ? "refused" : ""}`, "aria-label": item.host },
    make("header", {}, make("strong", {}, item.host)), make("dl", { class: "act-changes" }, factLines(rows)), ...refusals(item),
    ...(item.processes.length > 0 ? [clients(item, asked)] : []), ...(item.bystanders.length > 0 ? [bystanders(item)] : []),
    ...item.warnings.map((words) => make("p", { class: "act-warning" }, words)));
}

function clients({ processes: all }) {
  const rows = all.map(({ pid, user, command }) => make("li", {}, make("span", { class: "act-pid" }, String(pid)), make("code", {}, command ?? "not known"), make("span", {}, user ?? "owner unknown")));
  return make("details", { class: "act-list", open: "" }, make("summary", {}, `Clients that lose their work (${all.length})`), make("ul", {}, ...rows));
}

function refusals({ refusals: all }) {
  return all.map(({ code, sentence }) => make("p", { class: "act-refusal", "data-code": code }, make("strong", {}, "Refused: "), sentence));
}

function kept({ keep }) {
  if (keep === null || keep === undefined) return [];
  return [make("p", { class: "act-keep" }, make("strong", {}, `${keep.by ?? "The owner"} asks to keep it until ${moment(keep.until)}: `), keep.because)];
}

function facts(item) {
  const rows = [
    ["Age", item.age_s === null ? "not known" : age(item.age_s)],
    ["Memory", memory(item.mem_used_bytes)],
    [item.gpus.length === 1 ? "GPU" : "GPUs", item.gpus.length === 0 ? "none" : item.gpus.map((gpu) => `${gpu.place ?? gpu.index ?? gpu.uuid.slice(0, 12)} (${memory(gpu.mem_used_bytes)})`).join(", ")],
    ["Job", `${item.job_id ?? "not known"}, ${plural(item.processes.length, "process", "processes")}`],
  ];
  return make("dl", { class: "act-facts" }, factLines(rows));
}

function processes({ processes: all }, asked) {
  if (all.length < 2) return null;
  const rows = all.map(({ pid, user, command, task_id: id }) => make("li", { class: asked.includes(id) ? "asked" : null },
    make("span", { class: "act-pid" }, String(pid)), make("code", {}, command ?? "not known"), make("span", {}, user ?? "owner unknown")));
  return make("details", { class: "act-list", ...(all.length <= MOST_LINES ? { open: "" } : {}) }, make("summary", {}, `All of these, because they stand or fall together (${all.length})`), make("ul", {}, ...rows));
}

function bystanders({ bystanders: all }) {
  if (all.length === 0) return make("p", { class: "act-alone" }, "No other task is on its GPUs.");
  const rows = all.map(({ user, command, task_id: id }) => make("li", { "data-task": id }, make("span", {}, user ?? "owner unknown"), make("code", {}, command ?? "not known")));
  return make("details", { class: "act-list beside", ...(all.length <= 4 ? { open: "" } : {}) },
    make("summary", {}, `${plural(all.length, "other task")} on its GPUs: must be alive afterwards, and that is checked`), make("ul", {}, ...rows));
}
