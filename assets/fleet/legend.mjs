// The legend under the map: of what can be on it, that which is; and the scale of its colours.

import { allWithin, byId, contextOf, say, show, theme } from "../parts/dom.mjs";
import { amount } from "../parts/format.mjs";
import { explain } from "../parts/tips.mjs";
import {
  CLOSED,
  CRITICAL,
  LEASED,
  OTHERS,
  PAUSED,
  WARNING,
  WASTED,
  drawCell,
} from "../parts/cells.mjs";
import { FULL, STATES, palette, stateOf } from "../parts/gauges.mjs";

/** @type {Record<string, number>} */
const FLAGS = {
  wasted: WASTED,
  critical: CRITICAL,
  warning: WARNING,
  paused: PAUSED,
  leased: LEASED | OTHERS,
  closed: CLOSED,
};
/** @type {Map<string | undefined, number>} */
const CODES = new Map([...STATES].map(([code, state]) => [state, code]));
const GAP = 16;
const [WIDE, HIGH] = [22, 14];

/**
 * `flags`: as they are drawn, alerts and all.
 * @type {(cells: Uint8Array, flags: Uint8Array) => void}
 */
export function drawLegend(cells, flags) {
  const codes = new Set(cells);
  let all = 0;
  for (const flag of flags) all |= flag;
  const states = new Set([...codes].map(stateOf));
  let x = 0;
  for (const item of allWithin(byId("legend-states"), ":scope > *")) {
    const state = item.id.slice("legend-".length);
    const isThere = state in FLAGS ? (all & FLAGS[state]) > 0 : states.has(state);
    show(item, isThere);
    if (!isThere) continue;
    // Moved by a transform, which is no shift of the layout.
    item.style.transform = `translateX(${x}px)`;
    x += item.offsetWidth + GAP;
  }
}

export function drawSwatches() {
  const look = palette(theme()).live;
  const ratio = devicePixelRatio || 1;
  for (const canvas of byId("legend-states").querySelectorAll("canvas")) {
    const { state = "" } = canvas.dataset;
    Object.assign(canvas, { width: WIDE * ratio, height: HIGH * ratio });
    const context = contextOf(canvas);
    context.scale(ratio, ratio);
    const isIdle = state === "wasted" || state === "paused" || state === "leased";
    drawCell(
      { context, x: 0, y: 0, w: WIDE, h: HIGH, marks: look.marks, css: look.css },
      {
        code: CODES.get(state) ?? (isIdle ? 0 : (FULL / 2) | 0),
        flags: state === "leased" ? LEASED : (FLAGS[state] ?? 0),
        memory: isIdle && state !== "leased" ? FULL * 0.6 : 0,
      },
    );
  }
  const stops = [0, 48, 96, 144, 192, FULL].map((level) => look.css[level]);
  byId("scale").style.background = `linear-gradient(to right, ${stops.join(", ")})`;
}

/**
 * Names the metric and the ends of its scale.
 * @type {(metric: Metric) => void}
 */
export function drawScale(metric) {
  const { low, high } = scaleWords(metric);
  say(byId("scale-low"), low);
  say(byId("scale-high"), high);
  say(byId("scale-name"), metric.label);
  for (const name of ["metric", "scale", "scale-name"]) explain(byId(name), metric.meaning);
}

/** @type {(metric: Metric) => { low: string, high: string }} */
function scaleWords(metric) {
  if (metric.key === "throttle_bits") return { low: "none", high: "thermal or hardware" };
  if (metric.scale === "alarm") return { low: "well", high: "needs attention" };
  if (metric.scale === "count") return { low: "none", high: "a million" };
  if (metric.full !== null)
    return { low: `0 ${metric.unit}`, high: `${amount(metric.full)} ${metric.unit}` };
  if (metric.fullWords) return { low: "0", high: metric.fullWords };
  return { low: "", high: "no scale" };
}
