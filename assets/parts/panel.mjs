// What stands beside a GPU or a node and is asked of the hub once in a while. Redrawn only when
// something of it has changed.

import { itemsOf } from "./api.mjs";
import { keepFocus, make, redraw } from "./dom.mjs";

const EVERY_MS = 4_000;

/** Of a subclass: `draw(items)`. */
export class Panel {
  constructor(className) {
    this.askedAt = -Infinity;
    this.root = make("div", { class: className }, note("No data yet."));
  }

  /** What cannot be asked leaves what is there. */
  async ask(path, everyMs = EVERY_MS) {
    const now = performance.now();
    if (now - this.askedAt < everyMs) return;
    this.askedAt = now;
    const items = await itemsOf(path);
    if (items !== null) this.draw(items);
  }

  put(value, build) {
    keepFocus(this.root, () => redraw(this.root, value, build));
  }
}

export const note = (...words) => make("p", { class: "limits-none" }, ...words);
