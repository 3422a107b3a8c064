// Panels beside a GPU or a node, for which the hub is asked once in a while. Redrawn only when something
// has changed.

import { itemsOf } from "./api.mjs";
import { keepFocus, make, redraw } from "./dom.mjs";

const EVERY_MS = 4_000;

/**
 * A panel of the items of a list; a subclass draws them.
 * @template I
 */
export class Panel {
  /** @param {string} className */
  constructor(className) {
    this.askedAt = -Infinity;
    this.root = make("div", { class: className }, note("No data yet."));
  }

  /**
   * Asks for the items; a failure leaves the panel as it is.
   * @type {(path: string, everyMs?: number) => Promise<void>}
   */
  async ask(path, everyMs = EVERY_MS) {
    const now = performance.now();
    if (now - this.askedAt < everyMs) return;
    this.askedAt = now;
    const items = /** @type {any} */ (await itemsOf(path));
    if (items !== null) this.draw(items);
  }

  /** @type {(items: I[]) => void} */
  draw(items) {
    throw new Error(`nothing draws these ${items.length} items`);
  }

  /** @type {(value: unknown, build: () => Iterable<Node | string>) => void} */
  put(value, build) {
    keepFocus(this.root, () => redraw(this.root, value, build));
  }
}

/** @type {(...words: Children[]) => HTMLElement} */
export const note = (...words) => make("p", { class: "limits-none" }, ...words);
