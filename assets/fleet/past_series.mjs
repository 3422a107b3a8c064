// History of a GPU: all metrics of a span on one axis of seconds.

import { look } from "../parts/api.mjs";

/**
 * {t, columns: {key: [value or null]}}; `ask`: `look` or `get`.
 * @type {(uuid: string, keys: string[], from: number, to: number, step?: number,
 *   ask?: (path: string) => Promise<any>) => Promise<{ t: number[], columns: Record<string,
 *   (number | null)[]> }>}
 */
export async function pastOf(uuid, keys, from, to, step = 1, ask = look) {
  const [first, ...others] = keys;
  const query = new URLSearchParams({
    gpu: uuid,
    metric: first,
    also: others.join(),
    start: from.toFixed(0),
    end: to.toFixed(0),
    step: String(step),
  });
  const answer = await ask(`series?${query}`);
  return {
    t: answer.t,
    columns: Object.fromEntries([
      [first, valuesOf(answer)],
      ...others.map((key) => [key, valuesOf(answer.also[key])]),
    ]),
  };
}

// Counters and bit masks have no mean; of one second the highest is the value.
/** @type {(series: Pick<Hub.SeriesView, "mean" | "max">) => (number | null)[]} */
function valuesOf({ mean, max }) {
  return mean.map((value, at) => value ?? max[at]);
}
