// The lines of the Tasks page, and their order. Pure: answers of the API in, lines out.

import { grouped } from "../parts/grouped.mjs";

// Jobs, those that hold GPUs and do nothing first: what needs somebody is not the last of many ranks.
export const USUAL = { filter: "", sort: "idle_s", order: "desc", task: "" };
export const COLUMNS = [
  { key: "command", head: "Task", sort: "command", first: "asc", meaning: "Process id and command line; secrets are removed on the node." },
  { key: "user", head: "Owner", sort: "user", first: "asc", meaning: "The Unix user that the process runs as." },
  { key: "host", head: "Node", sort: "host", first: "asc", meaning: "The machine it runs on." },
  { key: "gpus", head: "GPUs", sort: "gpus", first: "desc", meaning: "Number of GPUs it uses." },
  { key: "memory", head: "Memory", sort: "mem_used_bytes", first: "desc", isNumber: true, meaning: "GPU memory held, total over its GPUs." },
  { key: "sm", head: "SM", sort: "sm_pct", first: "desc", isNumber: true, meaning: "Share of time in which its kernels ran, average over its GPUs; of a job, all its tasks together." },
  { key: "idle", head: "Idle for", sort: "idle_s", first: "desc", isNumber: true, meaning: "For how long all of its GPUs have been under 5 % busy, though it holds memory there." },
  { key: "age", head: "Age", sort: "started_at", first: "asc", isNumber: true, meaning: "Time since the process started." },
  { key: "state", head: "State", sort: "state", first: "asc", meaning: "Running, paused, or ended since the list was sorted." },
  { key: "manager", head: "Manager", sort: "manager", first: "asc", meaning: "What started it and may restart it: Slurm, Kubernetes, systemd, a notebook." },
  { key: "job", head: "Job", sort: "job", first: "asc", meaning: "Tasks that are paused and ended together. A dash: a single task." },
];
export const ALLOWED = { sort: COLUMNS.map(({ sort }) => sort), order: ["asc", "desc"], group: ["none", "owner", "job"] };

/** What the API is asked. */
export function queryOf(view, limit) {
  const query = new URLSearchParams({ limit, sort: view.sort, order: view.order });
  if (view.filter !== "") query.set("filter", view.filter);
  if (view.group !== "none") { query.set("group", view.group); view.open.forEach((key) => query.append("open", key)); }
  return `tasks?${query}`;
}

/** What an act takes as one: the node's part of a launch. */
export const jobOf = (task) => `${task.node}/${task.job_id ?? task.id}`;
/** Ranks of one launch are one job, on all their nodes. */
export const launchOf = (task) => (task.owner?.launch ? `${task.user ?? ""}/${task.owner.launch}` : jobOf(task));
/** What manages it, or else where it belongs, in a few words; null: nothing is known. */
export function managerWords({ manager, owner = {} }) {
  if (manager) return manager;
  if (owner.notebook) return `notebook ${owner.notebook.split("/").at(-1)}`;
  if (owner.slurm_job) return `slurm job ${owner.slurm_job}`;
  if (owner.pod) return `pod ${owner.namespace ? `${owner.namespace}/` : ""}${owner.pod}`;
  return owner.container_name ? `container ${owner.container_name}` : null;
}
const keyOf = (task) => `${task.node}/${task.id}`;
const groupOf = (task, by) => (by === "owner" ? task.user ?? "" : launchOf(task));

/** [{key, task} | {key, group, isOpen}] in the order of the answer. */
export function linesOf({ items, groups }, view) {
  if (view.group === "none" || !groups) return items.map((task) => ({ key: keyOf(task), task }));
  const inside = grouped(items, (task) => groupOf(task, view.group));
  return groups.flatMap((group) => {
    const isOpen = view.open.includes(group.key);
    const tasks = isOpen ? inside.get(group.key) ?? [] : [];
    return [{ key: `group ${group.key}`, group, isOpen }, ...tasks.map((task) => ({ key: keyOf(task), task }))];
  });
}

/** The newest values in the former places: {lines, came, went, isMoved}. What went keeps its place, marked. */
export function merged(shown, newest) {
  const fresh = new Map(newest.map((line) => [line.key, line]));
  const known = new Set(shown.map(({ key }) => key));
  const lines = shown.map((line) => fresh.get(line.key) ?? { ...line, isGone: true });
  const stayed = lines.filter(({ isGone }) => !isGone).map(({ key }) => key);
  const wanted = newest.map(({ key }) => key).filter((key) => known.has(key));
  return {
    lines, came: newest.length - wanted.length, went: lines.length - stayed.length,
    isMoved: wanted.some((key, at) => key !== stayed[at]),
  };
}

export function heldWords({ came, went, isMoved }) {
  const parts = [...(came > 0 ? [`${came} new`] : []), ...(went > 0 ? [`${went} ended`] : []), ...(isMoved ? ["new order"] : [])];
  return parts.join(", ");
}
