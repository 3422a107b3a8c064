// What the hub remembers of a Gpu: all metrics of a span on one axis of seconds.

import { look } from "../parts/api.mjs";

/** {t, columns: {key: [value or null]}} */
export async function pastOf(uuid, keys, from, to) {
  const [first, ...others] = keys;
  const query = new URLSearchParams({ gpu: uuid, metric: first, also: others.join(), start: from.toFixed(0), end: to.toFixed(0), step: 1 });
  const answer = await look(`series?${query}`);
  const columns = { [first]: valuesOf(answer) };
  for (const key of others) columns[key] = valuesOf(answer.also[key]);
  return { t: answer.t, columns };
}

// Counters and bit masks have no mean; of one second the highest is the value.
function valuesOf({ mean, max }) {
  return mean.map((value, at) => value ?? max[at]);
}
