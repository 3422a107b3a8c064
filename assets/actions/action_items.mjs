// Affected jobs of a preview, as the node saw them: a card for each.

import { targetWords } from "./action_words.mjs";
import { factLines, make, within } from "../parts/dom.mjs";
import { age, bytesWords, moment, plural } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";

const MOST_LINES = 12;

/**
 * The facts that name what an action is about, before anything has been previewed.
 * @type {(about: [string, string][]) => HTMLElement[]}
 */
export const namesOf = (about) =>
  about.length === 0 ? [] : [make("dl", { class: "act-facts act-about" }, factLines(about))];

/**
 * `isNamed`: the facts above name its target already.
 * @type {(item: Hub.PreviewItemView, asked: readonly (string | null)[], isNamed: boolean) => HTMLElement}
 */
export function itemCard(item, asked, isNamed) {
  if (item.changes?.length > 0) return settingCard(item, isNamed);
  return make(
    "article",
    {
      "class": `act-item ${item.refusals.length > 0 ? "refused" : ""}`,
      "data-job": item.job_id,
      "data-tasks": item.task_ids.join(" "),
      "aria-label": targetWords(item),
    },
    make(
      "header",
      {},
      make("strong", {}, item.owner ?? "owner unknown"),
      make("span", { class: "act-host" }, item.host),
      ...(item.kind?.startsWith("mps") ? [make("span", { class: "pill stale" }, "MPS")] : []),
      ...(item.manager === null ? [] : [make("span", { class: "pill" }, item.manager)]),
    ),
    make(
      "code",
      { class: "act-command", title: wholeCommand(item.command), tabindex: "0" },
      shortCommand(item.command),
    ),
    ...refusals(item),
    ...(isUnread(item) ? [] : [facts(item), processes(item, asked), bystanders(item)]),
    ...warnings(item),
  );
}

/**
 * Refused before any node looked: there is nothing to tell of it.
 * @type {(item: Hub.PreviewItemView) => boolean}
 */
const isUnread = ({ refusals: all, processes: members, age_s: seconds }) =>
  all.length > 0 && members.length === 0 && seconds === null;

/**
 * Builds the warnings: one stands out, the owner's own word first; the others look like the facts.
 * @type {(item: Hub.PreviewItemView) => HTMLElement[]}
 */
function warnings({ keep = null, warnings: told, processes: members }) {
  const all = told.filter((words) => words !== `${allWords(members)}.`); // the list above is headed by it
  const keepLines =
    keep === null
      ? []
      : [
          make(
            "p",
            { class: "act-keep" },
            make(
              "strong",
              {},
              `${keep.by ?? "The owner"} asks to keep it until ${moment(keep.until)}: `,
            ),
            keep.because,
          ),
        ];
  return [
    ...keepLines,
    ...all.map((words, at) =>
      make("p", { class: at === 0 && keep === null ? "act-warning" : "act-note" }, words),
    ),
  ];
}

/** @type {(item: Hub.PreviewItemView, isNamed: boolean) => HTMLElement} */
function settingCard(item, isNamed) {
  const rows = item.changes.map(({ what, before, after }) => [
    what,
    `${before} → `,
    make("strong", {}, after),
  ]);
  return make(
    "article",
    { "class": `act-item ${item.refusals.length > 0 ? "refused" : ""}`, "aria-label": item.host },
    ...(isNamed ? [] : [make("header", {}, make("strong", {}, item.host))]),
    make("dl", { class: "act-changes" }, factLines(rows)),
    ...refusals(item),
    ...(item.processes.length > 0 ? [clients(item)] : []),
    ...(item.bystanders.length > 0
      ? [
          bystanders(
            item,
            `${plural(item.bystanders.length, "task")} there, verified afterwards to be still running`,
          ),
        ]
      : []),
    ...warnings(item),
  );
}

/** @type {(item: Hub.PreviewItemView) => HTMLElement} */
function clients({ processes: all }) {
  const rows = all.map(({ pid, user, command }) =>
    make(
      "li",
      {},
      make("span", { class: "act-pid" }, String(pid)),
      make("code", { title: command }, command === null ? "not known" : shortCommand(command)),
      make("span", {}, user ?? "owner unknown"),
    ),
  );
  return make(
    "details",
    { class: "act-list", open: "" },
    make("summary", {}, `Clients that lose their work (${all.length})`),
    make("ul", {}, ...rows),
  );
}

/** @type {(item: Hub.PreviewItemView) => HTMLElement[]} */
function refusals({ refusals: all }) {
  return all.map(({ code, sentence }) =>
    make(
      "p",
      { "class": "act-refusal", "data-code": code },
      make("strong", {}, "Refused: "),
      sentence,
    ),
  );
}

/** @type {(item: Hub.PreviewItemView) => HTMLElement} */
function facts(item) {
  /** @type {(bytes: number | null) => string} */
  const size = (bytes) => bytesWords(bytes, "not known");
  const rows = [
    ["Age", item.age_s === null ? "not known" : age(item.age_s)],
    ["Memory", size(item.mem_used_bytes)],
    [
      item.gpus.length === 1 ? "GPU" : "GPUs",
      item.gpus.length === 0 ? "none" : gpuWords(item.gpus, size),
    ],
    [
      "Job",
      item.processes.length === 1
        ? `1 process, pid ${item.processes[0].pid}`
        : plural(item.processes.length, "process", "processes"),
    ],
  ];
  const list = make("dl", { class: "act-facts" }, factLines(rows));
  /** @type {HTMLElement} */
  const job = within(list, ":scope > :last-child");
  job.title = item.job_id ?? "";
  return list;
}

/**
 * "0, 1, 2, 3 (68.8 GiB each)": what several hold alike is said once.
 * @type {(gpus: Hub.GpuUseView[], size: (bytes: number | null) => string) => string}
 */
function gpuWords(gpus, size) {
  const alike = grouped(gpus, (gpu) => size(gpu.mem_used_bytes));
  return [...alike]
    .map(
      ([words, those]) =>
        `${those.map((gpu) => gpu.place ?? gpu.index ?? gpu.uuid.slice(0, 12)).join(", ")} (${words}${those.length > 1 && those[0].mem_used_bytes !== null ? " each" : ""})`,
    )
    .join(", ");
}

/**
 * Groups processes by command line, the main one first: ranks differ in little.
 * @type {(item: Hub.PreviewItemView, asked: readonly (string | null)[]) => HTMLElement | null}
 */
function processes({ processes: all }, asked) {
  if (all.length < 2) return null;
  const isLaunch = all.filter(({ task_id: id }) => id !== null && id !== undefined).length > 1;
  /** @type {(process: Hub.ProcessView) => string | null} */
  const keyOf = ({ command, task_id: id }) =>
    isLaunch && id && command !== null ? shortCommand(command).split(" ")[0] : command;
  const roles = [...grouped(all, keyOf).values()].map((members) => {
    const { command } = members[0];
    const pids = members.map(({ pid }) => pid).sort((one, other) => one - other);
    const isAsked = members.some(({ task_id: id }) => asked.includes(id));
    return make(
      "li",
      { class: isAsked ? "asked" : null },
      make("span", { class: "act-role" }, isLaunch ? rankWords(members) : roleWords(pids)),
      make("code", { title: command }, command === null ? "not known" : shortCommand(command)),
      make("span", { class: "act-pids", title: pids.join(", ") }, `pid ${pids.join(", ")}`),
      make("span", {}, [...new Set(members.map(({ user }) => user ?? "owner unknown"))].join(", ")),
    );
  });
  return make(
    "details",
    { class: "act-list", ...(roles.length <= MOST_LINES ? { open: "" } : {}) },
    make("summary", {}, allWords(all)),
    make("ul", {}, ...roles),
  );
}

/** @type {(members: Hub.ProcessView[]) => string} */
const allWords = ({ length }) => `All ${length} processes of this job`;
/** @type {(members: Hub.ProcessView[]) => string} */
const rankWords = (members) =>
  members.every(({ task_id: id }) => id)
    ? plural(members.length, "rank")
    : members.length === 1
      ? "launcher"
      : plural(members.length, "worker");
/** @type {(pids: number[]) => string} */
const roleWords = ({ length }) => (length === 1 ? "main" : `main, ${plural(length - 1, "worker")}`);

/**
 * `words`: what is said above the list.
 * @type {(item: Hub.PreviewItemView, words?: string) => HTMLElement}
 */
function bystanders(
  { bystanders: all },
  words = `${plural(all.length, "other task")} on its GPUs, verified as unaffected afterwards`,
) {
  if (all.length === 0) return make("p", { class: "act-alone" }, "No other task uses these GPUs.");
  const rows = all.map(({ user, command, task_id: id }) =>
    make(
      "li",
      { "data-task": id },
      make("span", {}, user ?? "owner unknown"),
      make("code", { title: command }, command === null ? "not known" : shortCommand(command)),
    ),
  );
  return make(
    "details",
    { class: "act-list beside", ...(all.length <= 4 ? { open: "" } : {}) },
    make("summary", {}, words),
    make("ul", {}, ...rows),
  );
}
