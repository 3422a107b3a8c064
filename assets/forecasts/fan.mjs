// The last three days of a number by the hour, and the next one as a fan from p10 to p90.

import { amount, moment } from "../parts/format.mjs";

const [HEIGHT, LEFT, BOTTOM, TOP] = [240, 44, 24, 10];
const LABEL_PX = 150;
const HOUR_S = 3_600;

export function fanOf(demand, width, unit) {
  const { recent, p10, p50, p90, starts_at: start, recent_from: from } = demand;
  const hours = recent.length + p50.length;
  const most = Math.max(1, ...recent.filter((value) => value !== null), ...p90) * 1.05;
  const x = (hour) => LEFT + ((width - LEFT) * hour) / Math.max(1, hours - 1);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - BOTTOM - TOP) * value) / most;
  const ahead = (values) => values.map((value, hour) => `${x(recent.length + hour)},${y(value)}`);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": wordsOf(demand, unit) });
  for (const part of [0, 0.5, 1]) {
    svg.append(shape("line", { x1: LEFT, x2: width, y1: y(part * most), y2: y(part * most), class: "fan-grid" }),
      label(LEFT - 6, y(part * most) + 4, amount(part * most), "end"));
  }
  const days = Math.ceil((LABEL_PX * hours) / 24 / width); // between two labels
  for (let hour = 0; hour < hours; hour += 24 * days) svg.append(label(x(hour), HEIGHT - 6, moment(from + hour * HOUR_S), "start"));
  if (p50.length > 0) {
    svg.append(shape("polygon", { points: [...ahead(p90), ...ahead(p10).reverse()].join(" "), class: "fan-range" }),
      shape("polyline", { points: ahead(p50).join(" "), class: "fan-middle" }),
      shape("line", { x1: x(recent.length - 0.5), x2: x(recent.length - 0.5), y1: TOP, y2: HEIGHT - BOTTOM, class: "fan-now" }));
  }
  svg.append(...linesOf(recent, x, y));
  svg.append(Object.assign(shape("title", {}), { textContent: `${unit} until ${moment(start)}, then p10, p50 and p90` }));
  return svg;
}

/** Broken where an hour is not known. */
function linesOf(values, x, y) {
  const lines = [[]];
  for (const [hour, value] of values.entries()) {
    if (value === null) lines.push([]);
    else lines.at(-1).push(`${x(hour)},${y(value)}`);
  }
  return lines.filter((points) => points.length > 0).map((points) => shape("polyline", { points: points.join(" "), class: "fan-past" }));
}

function wordsOf({ recent, p10, p50, p90 }, unit) {
  const last = recent.findLast((value) => value !== null);
  const now = last === undefined ? "not known" : `${amount(last)} ${unit} in the last hour`;
  return p50.length === 0 ? now : `${now}; in 24 hours about ${amount(p50.at(-1))}, between ${amount(p10.at(-1))} and ${amount(p90.at(-1))}`;
}

function label(x, y, words, anchor) {
  return Object.assign(shape("text", { x, y, "text-anchor": anchor, class: "fan-label" }), { textContent: words });
}

function shape(tag, traits) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(traits)) made.setAttribute(name, String(value));
  return made;
}
