// Words about actions. Pure: answers of the API in, words for people out.

import { ROWS } from "./action_table.mjs";
import { age, capital, clock, gibibytes, plural } from "../parts/format.mjs";
import { shortCommand } from "../parts/commands.mjs";

/** Actions that a task has wherever it is shown, each by its key. */
export const ACTS = [...ROWS.values()].filter(({ key }) => key !== "");
/** @type {(action: string) => string} */
export const verb = (action) => ROWS.get(action)?.label ?? action;
/**
 * Tells whether an action fits a task: only a paused one is resumed, and what is off is offered where a node permits it.
 * @type {(row: Hub.ActionRow, task: Pick<Hub.TaskView, "state"> & Partial<Pick<Hub.TaskView, "permits">>) => boolean}
 */
export function isFit({ id, fits, is_off: isOff }, { state, permits }) {
  if (isOff && !(permits ?? []).some((action) => action === id)) return false;
  return (
    fits === "" ||
    (fits === "running" ? state !== "paused" && state !== "suspended" : fits === state)
  );
}
/**
 * Why an action that fits a task cannot be done to it: its GPUs, or its kind, speak against it; "": nothing does.
 * @type {(action: string, task: Partial<Pick<Hub.TaskView, "refuses">>) => string}
 */
export function refusalOf(action, { refuses }) {
  const why = Object.entries(refuses ?? {}).find(([of]) => of === action)?.[1] ?? "";
  return why && `${capital(why)}.`;
}

/** @type {(action: string) => Hub.ActionRow} */
export function rowOf(action) {
  const row = ROWS.get(action);
  if (row === undefined) throw new Error(`there is no action ${action}`);
  return row;
}

/** @type {(action: string | undefined) => boolean} */
const isSetting = (action) => ROWS.get(action ?? "")?.is_setting ?? false;

/** Steps of a command, in their order; those it has reached are in its history. */
export const STEPS = ["requested", "queued", "sent", "accepted", "acting", "done"];
const OPEN = new Set(STEPS.slice(0, -1));
/** @type {(command: { state: string }) => boolean} */
export const isOpen = ({ state }) => OPEN.has(state);

/** @type {Record<string, string>} */
const STATES = {
  requested: "requested",
  queued: "queued",
  sent: "sent to the node",
  accepted: "accepted by the node",
  acting: "in progress",
  done: "done",
  refused: "refused",
  not_effective: "not effective",
  unkillable: "unkillable",
  expired: "expired",
  unknown: "unknown",
};
/** @type {(state: string) => string} */
export const stateWords = (state) => STATES[state] ?? state;

/** @type {Record<string, string>} */
const TONES = {
  done: "ok",
  refused: "stale",
  expired: "stale",
  unknown: "stale",
  not_effective: "lost",
  unkillable: "lost",
};
/** @type {(state: string) => string} */
export const tone = (state) => TONES[state] ?? "";

/** @type {(bytes: number | null | undefined) => string} */
function memory(bytes) {
  if (bytes === null || bytes === undefined) return "memory unknown";
  const { text, unit } = gibibytes(bytes);
  return `${text} ${unit}`;
}

/**
 * Returns the checks of a done or failed action: [label, true | false | null, what it means]. A check that was
 * not made is left out.
 * @type {(command: Hub.CommandView) => [string, boolean | null, string][]}
 */
export function checks({ action, verified }) {
  if (verified === null || verified === undefined) return [];
  const {
    exited,
    memory_returned: returned,
    bystanders_alive: alive,
    mem_before_bytes: before,
    mem_after_bytes: after,
  } = verified;
  const left =
    after !== null && after > 0
      ? `${memory(after)} of ${memory(before)} was not returned`
      : `${memory(before)} returned`;
  const vanished =
    verified.vanished?.length > 0
      ? `${plural(verified.vanished.length, "process", "processes")} vanished`
      : "";
  const survivors =
    verified.survivors?.length > 0
      ? `still running: pid ${verified.survivors.join(", ")}`
      : "all processes have exited";
  const read =
    verified.in_force === null
      ? "cannot be read back"
      : verified.in_force
        ? "verified by reading it back"
        : "the value read back differs from the one set";
  const writtenAt = verified.checkpoint_at ?? null;
  /** @type {[string, boolean | null, string][]} */
  const saved =
    writtenAt === null
      ? []
      : [["Checkpoint written", true, `at ${clock(writtenAt)}, before anything was touched`]];
  /** @type {[string, boolean | null, string][]} */
  const bystanders =
    alive === null || alive === undefined ? [] : [["Other processes unaffected", alive, vanished]];
  const proof = ROWS.get(action)?.proof;
  if (proof === "read_back")
    return [
      ["Applied", verified.applied, "accepted"],
      ["In force", verified.in_force, read],
      ...bystanders,
    ];
  if (proof !== "exit") return [...saved, ...bystanders];
  return [
    ...saved,
    ["Exited", exited, survivors],
    ["Memory returned", returned, before === null || before === undefined ? "" : left],
    ...bystanders,
  ];
}

/**
 * Returns the warning before an action that cannot be taken back.
 * @type {(action: string, params: Partial<Hub.ActionParams>) => string}
 */
export function lastWords(action, params) {
  const after = params.checkpoint_within_s
    ? `First its next checkpoint is waited for, up to ${age(params.checkpoint_within_s)}. `
    : "";
  const first = params.checkpoint_signal
    ? `SIG${params.checkpoint_signal} first, then up to ${age(params.checkpoint_wait_s ?? 0)} for a checkpoint, then `
    : "";
  return (
    after +
    rowOf(action)
      .last_words.replace("{first}", first)
      .replace("{grace}", age(params.grace_s ?? 30))
  );
}

/**
 * Typed before several jobs are ended: no hand does that by accident.
 * @type {(action: string, count: number) => string | null}
 */
export const phrase = (action, count) =>
  rowOf(action).is_typed && count > 1 ? `${action} ${count} jobs` : null;

/**
 * Returns the actions that undo a command, as [[action, word]].
 * @type {(command: Hub.CommandView) => [string, string][]}
 */
export function undoOf({ action, state }) {
  const undo = ROWS.get(action)?.undo ?? null;
  return undo === null || state !== "done" ? [] : [[undo, verb(undo)]];
}

/** @type {(item: Hub.PreviewItemView) => boolean} */
export const isPossible = (item) => item.refusals.length === 0;

/** @type {(preview: Hub.PreviewView) => string} */
export function buttonWords({ action, items, needs }) {
  const count = items.filter(isPossible).length;
  if (count === 0) return verb(action);
  if (isSetting(action)) return needs?.second_person ? "Ask a second person" : verb(action);
  const what = count === 1 ? "this job" : plural(count, "job");
  return needs?.second_person
    ? `Ask a second person to ${action} ${what}`
    : `${verb(action)} ${what}`;
}

/** @type {(target: Target) => string} */
export function targetWords({ owner, command, host, action, task_ids: ids }) {
  if (isSetting(action) || (ids?.length === 0 && command === null)) return host;
  return `${owner ?? "owner unknown"} · ${host} · ${shortCommand(command)}`;
}

/** @type {(items: Hub.PreviewItemView[]) => string} */
export function countWords(items) {
  const count = items.filter((item) => !isPossible(item)).length;
  if (count === 0) return "";
  return count === items.length
    ? ""
    : `${plural(count, "job")} of ${items.length} would be refused and ${count === 1 ? "is" : "are"} left out.`;
}

/**
 * The task of a command, as what another act is aimed at.
 * @type {(command: Hub.CommandView) => string[]}
 */
export const idsOf = ({ task_id: id }) => (id === null ? [] : [id]);
