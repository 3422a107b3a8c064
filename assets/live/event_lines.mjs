// Events as lines. Their text is a node's own word and only ever becomes text.

import { Lines, make, say, show } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";

/** @type {Record<string, string>} */
const MARKS = { info: "●", warning: "▲", critical: "✕" };

/** @type {(event: Hub.EventView) => boolean} */
export const isLoud = ({ severity }) => severity !== "info";

/**
 * Newest first; of one moment, in one order.
 * @type {(a: Hub.EventView, b: Hub.EventView) => number}
 */
export const byTime = (a, b) => b.at - a.at || (a.id < b.id ? 1 : -1);

/** @type {(event: Hub.EventView) => string} */
function whereOf({ host, gpu, place }) {
  if (gpu === null) return host;
  return place === null ? `${host} · ${gpu}` : `${host} · GPU ${place}`;
}

// A node may name the GPU first: "GPU 1: Xid 31: ...".
/** @type {(event: Hub.EventView) => string} */
export function wordsOf({ label, text, advice }) {
  if (text !== "")
    return text.toLowerCase().includes(label.toLowerCase()) ? text : `${label}: ${text}`;
  return advice === "" ? label : `${label}: ${advice}`;
}

/**
 * Builds a line of the list; with `onPress` it is a button.
 * @type {(item: Hub.EventView, onPress: EventPress | null) => EventLine}
 */
function eventLine(item, onPress) {
  const old = make("time", { class: "event-age", title: moment(item.at) });
  const parts = [
    make(
      "span",
      { class: "event-severity" },
      make("span", { "aria-hidden": "true" }, `${MARKS[item.severity] ?? "●"} `),
      item.severity,
    ),
    make("strong", { class: "event-where" }, whereOf(item)),
    old,
    make("span", { class: "event-text", title: item.advice || null }, wordsOf(item)),
  ];
  const inside =
    onPress === null
      ? parts
      : make(
          "button",
          { type: "button", class: "event-button", onclick: () => onPress(item) },
          parts,
        );
  const tick = () => say(old, when(item.at));
  return { root: make("li", { class: `event ${item.severity}` }, inside), draw: tick, tick };
}

/** A list whose lines stay while others come and go. */
export class EventList {
  /**
   * @param {string} empty
   * @param {EventPress | null} onPress
   */
  constructor(empty, onPress = null) {
    const list = make("ul", { class: "events" });
    /** @type {Lines<Hub.EventView, EventLine>} */
    this.lines = new Lines(
      list,
      ({ id }) => id,
      (item) => eventLine(item, onPress),
    );
    this.empty = make("p", { class: "events-none" }, empty);
    this.root = make("div", {}, this.empty, list);
  }

  /** @type {(items: Hub.EventView[]) => void} */
  draw(items) {
    show(this.empty, items.length === 0);
    this.lines.draw(items);
  }

  /** Says all ages again. */
  tick() {
    for (const line of this.lines.byKey.values()) line.tick();
  }
}
