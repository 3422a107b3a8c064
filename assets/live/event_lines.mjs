// Events as lines. Their text is a node's own word and only ever becomes text.

import { make, say } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";

const MARKS = { info: "●", warning: "▲", critical: "✕" };

export const isLoud = ({ severity }) => severity !== "info";

/** Newest first; of one moment, in one order. */
export const byTime = (a, b) => b.at - a.at || (a.id < b.id ? 1 : -1);

export function whereOf({ host, gpu, place }) {
  if (gpu === null) return host;
  return place === null ? `${host} · ${gpu}` : `${host} · GPU ${place}`;
}

export function wordsOf({ label, text, advice }) {
  if (text !== "") return text.toLowerCase().startsWith(label.toLowerCase()) ? text : `${label}: ${text}`;
  return advice === "" ? label : `${label}: ${advice}`;
}

/** {root, tick}: `tick` says the age anew. With `onPress` the line is a button. */
export function eventLine(item, onPress = null) {
  const old = make("time", { class: "event-age", title: moment(item.at) });
  const parts = [
    make("span", { class: "event-severity" }, make("span", { "aria-hidden": "true" }, `${MARKS[item.severity] ?? "●"} `), item.severity),
    make("strong", { class: "event-where" }, whereOf(item)), old,
    make("span", { class: "event-text", title: item.advice || null }, wordsOf(item)),
  ];
  const inside = onPress === null ? parts : [make("button", { type: "button", class: "event-button", onclick: onPress }, ...parts)];
  const root = make("li", { class: `event ${item.severity}` }, ...inside);
  const tick = () => say(old, when(item.at));
  tick();
  return { root, tick };
}

/** A list whose lines stay while others come and go. */
export class EventList {
  constructor(empty, onPress = null) {
    Object.assign(this, { onPress, lines: new Map() });
    this.list = make("ul", { class: "events" });
    this.empty = make("p", { class: "events-none" }, empty);
    this.root = make("div", {}, this.empty, this.list);
  }

  draw(items) {
    this.empty.hidden = items.length > 0;
    const ids = new Set(items.map(({ id }) => id));
    for (const [id, { root }] of this.lines) if (!ids.has(id)) { root.remove(); this.lines.delete(id); }
    items.forEach((item, at) => this.place(item, at));
  }

  place(item, at) {
    if (!this.lines.has(item.id)) this.lines.set(item.id, eventLine(item, this.onPress && (() => this.onPress(item))));
    const { root, tick } = this.lines.get(item.id);
    tick();
    if (this.list.children[at] !== root) this.list.insertBefore(root, this.list.children[at] ?? null);
  }
}
