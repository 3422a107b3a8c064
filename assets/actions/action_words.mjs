// What is said of acts. Pure: what the API answers in, words for people out.

import { age, gibibytes, plural } from "../parts/format.mjs";

export const ACTS = [
  ["notify", "Notify", "n"],
  ["pause", "Pause", "p"],
  ["resume", "Resume", "r"],
  ["end", "End", "e"],
];
const VERBS = { notify: "Notify", pause: "Pause", resume: "Resume", end: "End", hold: "Hold", release: "Release", terminate_client: "Take out of MPS",
  set_mps: "Set MPS", start_mps: "Start MPS", stop_mps: "Stop MPS", restart_mps: "Restart MPS", set_power_cap: "Cap power", lock_clocks: "Lock clocks", release_limit: "Take back", set_compute_mode: "Set mode" };
const SETTINGS = new Set(["set_mps", "start_mps", "stop_mps", "restart_mps", "set_power_cap", "lock_clocks", "release_limit", "set_compute_mode"]);
export const isSetting = (action) => SETTINGS.has(action);
/** It takes away what cannot be given back. */
export const isHarmful = (action) => ["end", "terminate_client", "stop_mps", "restart_mps"].includes(action);
export const verb = (action) => VERBS[action] ?? action;

/** In the order in which they are passed; what is reached lies in a command's history. */
export const STEPS = ["requested", "queued", "sent", "accepted", "acting", "done"];
const OPEN = new Set(STEPS.slice(0, -1));
export const isOpen = ({ state }) => OPEN.has(state);

const STATES = {
  requested: "asked for", queued: "waits for its turn", sent: "sent to the node", accepted: "the node has it",
  acting: "the node acts", done: "done", refused: "refused", not_effective: "not effective", unkillable: "unkillable",
  expired: "expired", unknown: "unknown",
};
export const stateWords = (state) => STATES[state] ?? state;

const TONES = { done: "ok", refused: "stale", expired: "stale", unknown: "stale", not_effective: "lost", unkillable: "lost" };
export const tone = (state) => TONES[state] ?? "";

export function memory(bytes) {
  if (bytes === null || bytes === undefined) return "memory not known";
  const { text, unit } = gibibytes(bytes);
  return `${text} ${unit}`;
}

/** Of a done or failed act, each apart: [label, true | false | null, what it means]. */
export function checks({ action, verified }) {
  if (verified === null || verified === undefined) return [];
  const { exited, memory_returned: returned, bystanders_alive: alive, mem_before_bytes: before, mem_after_bytes: after } = verified;
  const left = after > 0 ? `${memory(after)} of ${memory(before)} did not come back` : `${memory(before)} came back`;
  const vanished = verified.vanished?.length > 0 ? `${plural(verified.vanished.length, "neighbour")} vanished` : alive === null || alive === undefined ? "there was none, or none could be seen" : "no neighbour vanished";
  const survivors = verified.survivors?.length > 0 ? `still there: pid ${verified.survivors.join(", ")}` : "all its processes are gone";
  const read = verified.in_force === null ? "it cannot be read back" : verified.in_force ? "read back as wanted" : "what is read back is not what was wanted";
  if (isSetting(action) || action === "terminate_client") return [["Applied", verified.applied, "taken without a word"], ["In force", verified.in_force, read], ["Neighbours alive", alive, vanished]];
  if (action !== "end") return [["Neighbours alive", alive, vanished]];
  return [["Exited", exited, survivors], ["Memory returned", returned, before === null || before === undefined ? "" : left], ["Neighbours alive", alive, vanished]];
}

/** What somebody must know before, and cannot take back after. */
export function lastWords(action, params) {
  const grace = `${age(params.grace_s ?? 30)}`;
  if (action === "end") {
    const first = params.checkpoint_signal ? `SIG${params.checkpoint_signal} first and up to ${age(params.checkpoint_wait_s ?? 0)} for its checkpoint, then ` : "";
    return `${first}SIGTERM, ${grace} of grace, then SIGKILL for what is left. It cannot be undone: what is not in a checkpoint is lost.`;
  }
  if (action === "terminate_client") return "Its contexts on the Gpu are gone at once. The process itself goes on, with errors from CUDA.";
  if (action === "stop_mps" || action === "restart_mps") return "Clients that have not left by then lose their work on the Gpu.";
  if (isSetting(action)) return "It is read back afterwards: that it was taken without a word proves nothing.";
  if (action === "pause") return "It stops where it is and keeps its memory. Resume takes it back; a peer that waits for it may time out meanwhile.";
  if (action === "resume") return "It goes on where it was stopped.";
  return "It is written to the owner's terminals, and sent to their address where one is known. Nothing is stopped.";
}

/** Typed before several jobs are ended: no hand does that by accident. */
export const phrase = (action, count) => (action === "end" && count > 1 ? `end ${count} jobs` : null);

export const isPossible = (item) => item.refusals.length === 0;

export function buttonWords({ action, items, needs }) {
  const count = items.filter(isPossible).length;
  if (count === 0) return "Nothing to do";
  if (isSetting(action)) return needs?.second_person ? "Ask a second person" : verb(action);
  const what = count === 1 ? "this job" : plural(count, "job");
  return needs?.second_person ? `Ask a second person to ${action} ${what}` : `${verb(action)} ${what}`;
}

export function targetWords({ owner, command, host, action, task_ids: ids }) {
  if (isSetting(action) || (ids?.length === 0 && command === null)) return host;
  return `${owner ?? "owner unknown"} · ${host} · ${command ?? "command not known"}`;
}

export function countWords(items) {
  const refused = items.filter((item) => !isPossible(item)).length;
  if (refused === 0) return "";
  return refused === items.length ? "All of it is refused." : `${plural(refused, "job")} of ${items.length} would be refused and ${refused === 1 ? "is" : "are"} left out.`;
}
