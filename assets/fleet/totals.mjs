// The totals line: one look at the whole fleet.

import { amount, gibibytes, watts } from "../parts/format.mjs";
import { say } from "../parts/dom.mjs";

// What nobody can know is a dash; the chip's own words say so.
const UNKNOWN = { text: "–", unit: "" };

export function drawTotals(line, totals) {
  const { nodes, gpus } = totals;
  put(line, "nodes", figure(nodes.live, of(nodes.live + nodes.suspect + nodes.silent)));
  put(line, "suspect", figure(nodes.suspect), toneOf(nodes.suspect, "warn"));
  put(line, "silent", figure(nodes.silent), toneOf(nodes.silent, "bad"));
  put(line, "gpus", figure(gpus.ok, of(gpus.total)));
  put(line, "stale", figure(gpus.stale), toneOf(gpus.stale, "warn"));
  put(line, "failed", figure(gpus.lost + gpus.error), toneOf(gpus.lost + gpus.error, "bad"));
  put(line, "offline", figure(gpus.offline), toneOf(gpus.offline, "warn"));
  put(line, "free", figure(gpus.free));
  put(line, "util", known(totals.util_mean_pct, (value) => ({ text: amount(value), unit: "%" })));
  put(line, "power", known(totals.power_w, watts));
  put(line, "memory", known(totals.mem_used_bytes, (used) => memory(used, totals.mem_total_bytes)));
  put(line, "tasks", figure(totals.tasks));
  put(line, "throttled", figure(totals.throttled), toneOf(totals.throttled, "warn"));
}

const NEVER_KEPT = ["suspect", "silent", "stale", "failed", "offline", "free", "tasks"];

/** Of a moment that is over; null: not known yet. What history does not tell is a dash. */
export function drawTotalsThen(line, totals) {
  for (const key of NEVER_KEPT) put(line, key, UNKNOWN, "calm");
  const then = totals ?? { nodes: null, gpus_ok: null, util_mean_pct: null, power_w: null, mem_used_bytes: null, throttled: null };
  put(line, "nodes", figure(then.nodes));
  put(line, "gpus", figure(then.gpus_ok, totals === null ? "" : of(then.gpus_seen)));
  put(line, "util", known(then.util_mean_pct, (value) => ({ text: amount(value), unit: "%" })));
  put(line, "power", known(then.power_w, watts));
  put(line, "memory", known(then.mem_used_bytes, (used) => memory(used, then.mem_total_bytes)));
  put(line, "throttled", figure(then.throttled), toneOf(then.throttled, "warn"));
}

const toneOf = (count, tone) => (count > 0 ? tone : "calm");
const of = (total) => `of ${amount(total)}`;
const known = (value, words) => (value === null ? UNKNOWN : words(value));

function figure(count, unit = "") {
  return count === null ? UNKNOWN : { text: amount(count), unit };
}

function memory(used, total) {
  const { text, unit } = gibibytes(used);
  if (total === null || total === 0) return { text, unit };
  return { text, unit: `${unit} · ${amount((100 * used) / total)} %` };
}

// One text: were the unit an element of its own, it would jump with every digit more.
function put(line, key, { text, unit }, tone = "") {
  const chip = line.querySelector(`[data-total="${key}"]`);
  say(chip.querySelector(".total-value"), `${text} ${unit}`.trim());
  chip.dataset.tone = tone;
}
