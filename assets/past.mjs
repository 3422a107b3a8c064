// What the hub remembers of a Gpu: all metrics of a span on one axis of seconds.

import { look } from "./api.mjs";

/** {t, columns: {key: [value or null]}} */
export async function pastOf(uuid, keys, from, to) {
  const query = new URLSearchParams({ gpu: uuid, start: from.toFixed(0), end: to.toFixed(0) });
  const answers = await Promise.all(keys.map((metric) => look(`series?${query}&metric=${metric}`)));
  const rows = new Map();
  answers.forEach(({ t, mean }, at) => t.forEach((time, row) => {
    if (!rows.has(time)) rows.set(time, {});
    rows.get(time)[keys[at]] = mean[row];
  }));
  const t = [...rows.keys()].sort((one, other) => one - other);
  return { t, columns: Object.fromEntries(keys.map((key) => [key, t.map((time) => rows.get(time)[key] ?? null)])) };
}
