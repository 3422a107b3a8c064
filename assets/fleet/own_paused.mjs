// Paused and suspended tasks of this person, by whom and why: beside the quiet line, where their owner looks first.

import { me } from "../parts/account.mjs";
import { itemsOf } from "../parts/api.mjs";
import { byId, say, show } from "../parts/dom.mjs";
import { plural, when } from "../parts/format.mjs";

const EVERY_MS = 20_000;
const MOST = 500;
/** Which action leads to the state of a task that somebody holds.
 * @type {Record<string, string>}
 */
const ACTIONS = { paused: "pause", suspended: "suspend" };
/** @type {(tasks: Hub.TaskView[]) => string} */
const statesOf = (tasks) => [...new Set(tasks.map(({ state }) => state))].sort().join(" or ");

export async function followOwnPaused() {
  const person = await me().catch(() => null);
  const names = person?.unix_names ?? [];
  if (names.length === 0) return;
  if (!document.hidden) await look(names.map((name) => `user:${name}`).join(" | "));
  setTimeout(followOwnPaused, EVERY_MS);
}

/** @type {(filter: string) => Promise<void>} */
async function look(filter) {
  const tasks = await itemsOf(`tasks?limit=${MOST}&filter=${encodeURIComponent(filter)}`, []);
  const paused = tasks.filter(({ state }) => (state ?? "") in ACTIONS);
  /** @type {HTMLAnchorElement} */
  const line = byId("own-paused");
  show(line, paused.length > 0);
  if (paused.length === 0) return;
  const [{ id, host, state: hold }] = paused;
  const pauses = (
    await itemsOf(`commands?state=all&limit=20&task=${encodeURIComponent(id)}`, [])
  ).filter(({ action, state }) => action === ACTIONS[hold ?? ""] && state === "done");
  const [last] = pauses.sort((one, other) => other.requested_at - one.requested_at);
  const by =
    last === undefined
      ? ""
      : ` by ${last.by?.name ?? "somebody"}, ${when(last.requested_at)}${last.reason ? `: “${last.reason}”` : ""}`;
  line.href = `/tasks?task=${encodeURIComponent(id)}`;
  say(
    line,
    `${paused.length === 1 ? `Your task on ${host} was ${hold}` : `${plural(paused.length, "task")} of yours are ${statesOf(paused)}, one`}${by}`,
  );
}
