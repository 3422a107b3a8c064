// The spans of time that charts offer: their buttons, the address's `span`, and how one is moved and stretched.

import { writeQuery } from "../parts/address.mjs";
import { allWithin, make } from "../parts/dom.mjs";

const SPANS = [
  ["300", "5 min"],
  ["900", "15 min"],
  ["3600", "1 h"],
];
const SHORTEST_S = 4;

/**
 * Returns the seconds that the address names; the shortest span where it names none that is offered.
 * @type {(search: string) => number}
 */
export function readSpan(search) {
  const text = new URLSearchParams(search).get("span") ?? "";
  return Number(SPANS.some(([seconds]) => seconds === text) ? text : SPANS[0][0]);
}

/** @type {(seconds: number) => void} */
export function writeSpan(seconds) {
  const query = new URLSearchParams(location.search);
  query.set("span", String(seconds));
  writeQuery(query);
}

/**
 * Draws a button for each span.
 * @type {(place: HTMLElement, chosenS: number) => void}
 */
export function drawSpans(place, chosenS) {
  place.replaceChildren(
    ...SPANS.map(([seconds, words]) =>
      make("button", { "type": "button", "data-span": seconds }, words),
    ),
  );
  pressSpan(place, chosenS);
}

/** @type {(place: HTMLElement, chosenS: number) => void} */
export function pressSpan(place, chosenS) {
  for (const button of allWithin(place, ":scope > *"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.span) === chosenS));
}

/**
 * Moves a span by a share of its length; a negative one leads into the past.
 * @type {(span: TimeRange, share: number) => TimeRange}
 */
export function shift({ from, to }, share) {
  const seconds = share * (to - from);
  return { from: from + seconds, to: to + seconds };
}

/**
 * Stretches a span around its middle; null: it would be too short to draw.
 * @type {(span: TimeRange, factor: number) => TimeRange | null}
 */
export function stretch({ from, to }, factor) {
  const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
  return half < SHORTEST_S / 2 ? null : { from: middle - half, to: middle + half };
}
