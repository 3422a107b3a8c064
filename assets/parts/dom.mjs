// Elements from values. Text from nodes is hostile: it only ever becomes a text node.

import { keepFocus } from "./focus.mjs";

/**
 * The element of this id, of the type that is asked for; null where the page has none.
 * @type {<E extends HTMLElement = HTMLElement>(id: string) => E}
 */
export const byId = (id) => /** @type {any} */ (document.getElementById(id));

/**
 * The first element within `root` that the selector names, of the type that is asked for.
 * @type {<E extends Element = HTMLElement>(root: ParentNode, selector: string) => E}
 */
export const within = (root, selector) => /** @type {any} */ (root.querySelector(selector));

/**
 * Returns all elements within `root` that the selector names, of the requested type.
 * @type {<E extends Element = HTMLElement>(root: ParentNode, selector: string) => E[]}
 */
export const allWithin = (root, selector) =>
  /** @type {any} */ ([...root.querySelectorAll(selector)]);

/**
 * Returns the context that draws on a canvas.
 * @type {(canvas: HTMLCanvasElement, traits?: CanvasRenderingContext2DSettings) => CanvasRenderingContext2D}
 */
export function contextOf(canvas, traits) {
  const context = canvas.getContext("2d", traits);
  if (context === null) throw new Error("this browser draws on no canvas");
  return context;
}

/** @type {(event: Event) => HTMLElement} */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/** @type {(error: unknown) => string} */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * JSON that came with the page.
 * @type {(id: string) => any}
 */
export const tableOf = (id) => JSON.parse(byId(id).textContent);

/** @type {<T extends string>(tag: T, traits?: Traits, ...children: Children[]) => ElementOf<T>} */
export function make(tag, traits = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(traits)) {
    if (value === null || value === undefined) continue;
    if (typeof value === "function")
      element.addEventListener(name.slice(2), /** @type {any} */ (value));
    else element.setAttribute(name, String(value));
  }
  const nodes = /** @type {Child[]} */ (/** @type {unknown[]} */ (children).flat(Infinity));
  element.append(...nodes.filter((child) => child !== null && child !== undefined));
  return /** @type {any} */ (element);
}

/**
 * Touches the page only when something changed, so that a selection or a screen reader is left
 * alone.
 * @type {(element: Element, text: string) => void}
 */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** @type {(element: HTMLElement, isShown: boolean) => void} */
export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/**
 * A place that is there only while it has something to say.
 * @type {(element: HTMLElement, text: string) => void}
 */
export function sayOrHide(element, text) {
  say(element, text);
  show(element, text !== "");
}

/**
 * A button as it stands in rows and lines.
 * @type {(words: string, onclick: Traits["onclick"], traits?: Traits) => HTMLButtonElement}
 */
export const button = (words, onclick, traits = {}) =>
  make("button", { type: "button", class: "button small", onclick, ...traits }, words);

/**
 * Builds the options of a select: [[value, words]].
 * @type {(pairs: Choices) => HTMLOptionElement[]}
 */
export const options = (pairs) =>
  Array.from(pairs, ([value, words]) => make("option", { value }, words));

/**
 * [[label, words]] as the lines of a `dl`.
 * @type {(pairs: readonly (readonly Children[])[]) => HTMLElement[]}
 */
export const factLines = (pairs) =>
  pairs.map(([label, ...words]) =>
    make("div", {}, make("dt", {}, label), make("dd", {}, ...words)),
  );

/** @type {WeakMap<Element, string>} */
const drawnValues = new WeakMap();

/**
 * Fills a place again, but only when `value`, which stands for its content, has changed.
 * @type {(place: Element, value: unknown, build: () => Iterable<Node | string>) => void}
 */
export function redraw(place, value, build) {
  const text = JSON.stringify(value);
  if (drawnValues.get(place) === text) return;
  drawnValues.set(place, text);
  keepFocus(place, () => place.replaceChildren(...build()));
}

/**
 * A line for each key, which stays while its values change, so that focus and readers are left
 * alone.
 * @template I
 * @template {DrawnLine<I>} [L=DrawnLine<I>]
 */
export class Lines {
  /** @type {Map<unknown, L>} */
  byKey = new Map();

  /**
   * `isOrdered`: they stand in the order of the items.
   * @param {Element} place
   * @param {(item: I) => unknown} key
   * @param {(item: I) => L} build
   */
  constructor(place, key, build, isOrdered = true) {
    this.place = place;
    this.key = key;
    this.build = build;
    this.isOrdered = isOrdered;
  }

  /** @type {(items: readonly I[]) => void} */
  draw(items) {
    keepFocus(this.place, () => this.drawAll(items));
  }

  /** @type {(items: readonly I[]) => void} */
  drawAll(items) {
    const keys = new Set(items.map(this.key));
    for (const [key, { root }] of this.byKey)
      if (!keys.has(key)) {
        root.remove();
        this.byKey.delete(key);
      }
    items.forEach((item, at) => this.drawOne(item, at));
  }

  /** @type {(item: I, at: number) => void} */
  drawOne(item, at) {
    const key = this.key(item);
    const line = this.byKey.get(key) ?? this.build(item);
    this.byKey.set(key, line);
    const { root } = line;
    line.draw(item, at);
    const there = this.isOrdered ? (this.place.children[at] ?? null) : null;
    const stays = this.isOrdered
      ? root === there || root.contains(document.activeElement)
      : root.parentNode === this.place;
    if (!stays) this.place.insertBefore(root, there);
  }
}

const TypedTarget = /** @type {TypedTargetClass} */ (EventTarget);

/**
 * A target that tells of events with details, whose types `M` has by their names.
 * @template {object} [M={}]
 * @extends {TypedTarget<M>}
 */
export class Teller extends TypedTarget {
  /** @type {(name: keyof M & string, detail?: M[keyof M]) => void} */
  tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail: detail === undefined ? {} : detail }));
  }
}

/**
 * Once, when nothing has come for so long.
 * @type {<A extends unknown[]>(ms: number, does: (...given: A) => unknown) => (...given: A) =>
 *   void}
 */
export function afterPause(ms, does) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => does(...given), ms);
  };
}

/**
 * A page that comes in pieces is seen when they stand: nothing jumps under an eye or a hand.
 * @type {(root: HTMLElement) => void}
 */
export function settle(root) {
  delete root.dataset.unsettled;
}

/**
 * A key for the page itself: nobody writes, no dialog is open, nothing is held beside it.
 * @type {(event: KeyboardEvent) => boolean}
 */
export const isShortcut = (event) =>
  !isTyping(event.target) &&
  !event.ctrlKey &&
  !event.metaKey &&
  !event.altKey &&
  document.querySelector("dialog[open]") === null;

/** @type {(target: EventTarget | null) => boolean} */
export const isTyping = (target) =>
  target instanceof Element && target.matches("input:not([type=range]), select, textarea");

/** @type {() => Theme} */
export function theme() {
  const choice = document.documentElement.dataset.theme;
  if (choice === "dark" || choice === "light") return choice;
  return matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
}

/** @type {(does: () => unknown) => void} */
export function onTheme(does) {
  addEventListener("gpudeck-theme", does);
  matchMedia("(prefers-color-scheme: light)").addEventListener("change", does);
}

/** @param {string} text */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure context, or the browser says no
  }
}
