// What the History page draws, as the hub has it: one answer per look, for all GPUs and metrics.

import { look } from "../parts/api.mjs";
import { DAY_S, HOUR_S, nowS, stepOf } from "../parts/time_ranges.mjs";

const POINTS = 900;
const MANY_LINES = 8;
const OWNER_POINTS = 720;
const MOST_EVENTS = 500;
const MOST_NODES = 4;

export function stepFor(subject, metrics, seconds) {
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

export function usagePath({ owner }, [start, end], step) {
  return `usage?${new URLSearchParams({ by: "user", of: owner, bucket: step, start: start.toFixed(0), end: end.toFixed(0) })}`;
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

/** Buckets in which they held something; and all of it together. */
export async function usageOf(subject, bounds, asked) {
  const { items, bucket: step } = await look(usagePath(subject, bounds, asked));
  const buckets = items.map((item) => {
    // Of the bucket that is not over yet, as much as there is of it.
    const seconds = Math.max(1, Math.min(step, nowS() - item.t));
    return { t: item.t, gpus: item.gpu_s / seconds, util_pct: item.util_pct, mem_used_bytes: item.mem_used_bytes, kwh: item.energy_j === null ? null : item.energy_j / 3.6e6 };
  });
  const sum = (name) => items.reduce((total, item) => total + (item[name] ?? 0), 0);
  return { step, buckets, hours: sum("gpu_s") / HOUR_S, idleHours: sum("idle_s") / HOUR_S, kwh: items.some((item) => item.energy_j !== null) ? sum("energy_j") / 3.6e6 : null };
}

/** {items, isAll}: of the GPUs and of their Nodes as a whole. */
export async function eventsOf(gpus, nodes, [start, end]) {
  const span = { start: start.toFixed(0), end: end.toFixed(0), limit: MOST_EVENTS };
  const asked = nodes.length > MOST_NODES ? [{}] : nodes.map((node) => ({ node }));
  const answers = await Promise.all(asked.map((more) => look(`events?${new URLSearchParams({ ...span, ...more })}`)));
  const items = answers.flatMap((answer) => answer.items).filter(({ gpu, node }) => nodes.includes(node) && (gpu === null || gpus.includes(gpu)));
  return { items, isAll: answers.every(({ next }) => next === null) };
}
