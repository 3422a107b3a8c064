// The lines of the Tasks page, and their order. Pure: answers of the API in, lines out.

import { grouped } from "../parts/grouped.mjs";

/**
 * Returns the request for the rows.
 * @type {(view: Values, limit: number) => `tasks?${string}`}
 */
export function queryOf({ sort, order, filter, group, open }, limit) {
  const query = new URLSearchParams({ limit: String(limit), sort, order });
  if (filter !== "") query.set("filter", filter);
  if (group !== "none") query.set("group", group);
  for (const key of open) query.append("open", key);
  return `tasks?${query}`;
}

/**
 * Returns the key of what an action takes as one job: the node's part of a launch.
 * @type {(task: Hub.TaskView) => string}
 */
export const jobOf = (task) => `${task.node}/${task.job_id ?? task.id}`;
/**
 * Returns the key of a job with the ranks of its launch on all nodes.
 * @type {(task: Hub.TaskView) => string}
 */
export const launchOf = (task) =>
  task.owner.launch ? `${task.user ?? ""}/${task.owner.launch}` : jobOf(task);
/**
 * Returns a task's manager, or else where it belongs, in a few words; null: nothing is known.
 * @type {(what: Pick<Hub.TaskView, "manager" | "owner">) => string | null}
 */
export function managerWords({ manager, owner }) {
  if (manager) return manager;
  if (owner.notebook) return `notebook ${owner.notebook.split("/").at(-1)}`;
  if (owner.slurm_job) return `slurm job ${owner.slurm_job}`;
  if (owner.pod) return `pod ${owner.namespace ? `${owner.namespace}/` : ""}${owner.pod}`;
  return owner.container_name ? `container ${owner.container_name}` : null;
}
/** @type {(task: Hub.TaskView) => string} */
export const keyOf = (task) => `${task.node}/${task.id}`;
/** @type {(task: Hub.TaskView) => TaskLine} */
const lineOf = (task) => ({ key: keyOf(task), task });

/**
 * Returns the selected tasks that are not among these.
 * @type {(selected: Map<string, Hub.TaskView>, items: Hub.TaskView[]) => [string, Hub.TaskView][]}
 */
export function hiddenOf(selected, items) {
  const keys = new Set(items.map(keyOf));
  return [...selected].filter(([key]) => !keys.has(key));
}

/**
 * Returns the lines in the order of the answer.
 * @type {(answer: Hub.TaskList, view: Values) => TasksLine[]}
 */
export function linesOf({ items, groups }, view) {
  if (view.group === "none" || !groups) return items.map(lineOf);
  const inside = grouped(items, (task) =>
    view.group === "owner" ? (task.user ?? "") : launchOf(task),
  );
  return groups.flatMap((group) => {
    const isOpen = view.open.includes(group.key);
    return [
      { key: `group ${group.key}`, group, isOpen },
      ...(isOpen ? (inside.get(group.key) ?? []) : []).map(lineOf),
    ];
  });
}

/**
 * The newest values in the former places. What went keeps its place, marked.
 * @type {(shown: TasksLine[], newest: TasksLine[]) => MergedLines}
 */
export function merged(shown, newest) {
  const fresh = new Map(newest.map((line) => [line.key, line]));
  const keys = new Set(shown.map(({ key }) => key));
  const lines = shown.map((line) => fresh.get(line.key) ?? { ...line, isGone: true });
  const stayed = lines.filter(({ isGone }) => !isGone).map(({ key }) => key);
  const order = newest.map(({ key }) => key).filter((key) => keys.has(key));
  return {
    lines,
    came: newest.length - order.length,
    went: lines.length - stayed.length,
    isMoved: order.some((key, at) => key !== stayed[at]),
  };
}

/** @type {(changes: MergedLines) => string} */
export function heldWords({ came, went, isMoved }) {
  const parts = [
    ...(came > 0 ? [`${came} new`] : []),
    ...(went > 0 ? [`${went} ended`] : []),
    ...(isMoved ? ["new order"] : []),
  ];
  return parts.join(", ");
}
