// What the History page draws, as the hub has it: one answer per look, for all GPUs and metrics.

import { look } from "../parts/api.mjs";
import { DAY_S, HOUR_S, stepOf } from "../parts/time_ranges.mjs";

const POINTS = 900;
const MANY_LINES = 8;
const OWNER_POINTS = 720;
const FLEET_POINTS = 720;
const MOST_EVENTS = 500;
const MOST_NODES = 4;

export function stepFor(subject, metrics, seconds) {
  if (subject.kind === "fleet") return Math.max(60, stepOf(seconds, FLEET_POINTS));
  if (subject.kind === "team") return Math.max(HOUR_S, stepOf(seconds, OWNER_POINTS)); // whole hours alone
  if (subject.kind === "owner") {
    // By the minute the hub looks at single tasks: a day at most. Above, hours stand ready.
    if (seconds <= DAY_S) return Math.max(60, Math.min(1800, stepOf(seconds, OWNER_POINTS)));
    return Math.max(HOUR_S, stepOf(seconds, OWNER_POINTS));
  }
  return stepOf(seconds, subject.gpus.length * metrics.length > MANY_LINES ? POINTS / 2 : POINTS);
}

export function seriesPath({ gpus }, metrics, [start, end], step) {
  const [first, ...beside] = gpus;
  const query = new URLSearchParams({ gpu: first, metric: metrics[0], start: start.toFixed(0), end: end.toFixed(0), step });
  if (beside.length > 0) query.set("beside", beside.join());
  if (metrics.length > 1) query.set("also", metrics.slice(1).join());
  return `series?${query}`;
}

export function usagePath({ asked: { by, name } }, [start, end], step) {
  return `usage?${new URLSearchParams({ by, of: name, bucket: step, start: start.toFixed(0), end: end.toFixed(0) })}`;
}

export function loadPath({ fleet }, [start, end], step) {
  return `load?${new URLSearchParams({ ...fleet, start: start.toFixed(0), end: end.toFixed(0), step })}`;
}

/** {step, t, lines: Map(uuid -> Map(metric -> {mean, min, max}))} */
export async function seriesOf(subject, metrics, bounds, step) {
  const answer = await look(seriesPath(subject, metrics, bounds, step));
  const own = { [answer.metric]: answer, ...answer.also };
  const lines = new Map([[subject.gpus[0], new Map(Object.entries(own))]]);
  for (const uuid of subject.gpus.slice(1)) lines.set(uuid, new Map(Object.entries(answer.beside[uuid])));
  return { step: answer.step, t: answer.t, lines };
}

/** The newest buckets take the place of what was there of them, and what is too old goes. */
export function moved(data, tail, start) {
  const kept = data.t.findLastIndex((t) => t < tail.t[0]) + 1;
  const first = Math.max(0, data.t.findIndex((t) => t + data.step > start));
  const lines = new Map([...data.lines].map(([uuid, metrics]) => [uuid, new Map([...metrics].map(([key, band]) => {
    const more = tail.lines.get(uuid)?.get(key);
    return [key, more === undefined ? band : Object.fromEntries(["mean", "min", "max"].map((name) => [name, [...band[name].slice(first, kept), ...more[name]]]))];
  }))]));
  return { step: data.step, t: [...data.t.slice(first, kept), ...tail.t], lines };
}

/** {items, isAll}: of the GPUs and of their Nodes as a whole. */
export async function eventsOf(gpus, nodes, [start, end]) {
  const span = { start: start.toFixed(0), end: end.toFixed(0), limit: MOST_EVENTS };
  const asked = nodes.length > MOST_NODES ? [{}] : nodes.map((node) => ({ node }));
  const answers = await Promise.all(asked.map((more) => look(`events?${new URLSearchParams({ ...span, ...more })}`)));
  const items = answers.flatMap((answer) => answer.items).filter(({ gpu, node }) => nodes.includes(node) && (gpu === null || gpus.includes(gpu)));
  return { items, isAll: answers.every(({ next }) => next === null) };
}

/** From the first to the last step with data; null: there is none. */
export function knownSpan({ t, step, lines }) {
  const times = t.filter((_, at) => [...lines.values()].some((metrics) => [...metrics.values()].some(({ mean }) => mean[at] !== null)));
  return times.length === 0 ? null : [times[0], times.at(-1) + step];
}
