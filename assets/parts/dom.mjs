// Elements from values. Text from nodes is hostile: it only ever becomes a text node.

export const byId = (id) => document.getElementById(id);

export function make(tag, traits = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(traits)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Touches the page only when something changed, so that a selection or a screen reader is left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** A place that is there only while it has something to say. */
export function sayOrHide(element, text) {
  say(element, text);
  show(element, text !== "");
}

/** A button as it stands in rows and lines. */
export const button = (words, onclick, traits = {}) =>
  make("button", { type: "button", class: "button small", onclick, ...traits }, words);

/** What one chooses from: [[value, words]]. */
export const options = (pairs) => pairs.map(([value, words]) => make("option", { value }, words));

/** [[label, words]] as the lines of a `dl`. */
export const factLines = (pairs) => pairs.map(([label, ...words]) =>
  make("div", {}, make("dt", {}, label), make("dd", {}, ...words)));

const drawn = new WeakMap();

/** Fills a place anew, but only when `value`, which says what stands there, is another. */
export function redraw(place, value, build) {
  const text = JSON.stringify(value);
  if (drawn.get(place) === text) return;
  drawn.set(place, text);
  place.replaceChildren(...build());
}

/** Draws what may hold the focus; the link or button that says the same has it again. */
export function keepFocus(place, draw) {
  const name = (one) => Object.values(one.dataset).join() || one.textContent;
  const focused = place.contains(document.activeElement) ? name(document.activeElement) : null;
  draw();
  if (focused === null || place.contains(document.activeElement)) return;
  [...place.querySelectorAll("a, button")].find((one) => name(one) === focused)?.focus();
}

/** A line for each key, which stays while its values change, so that focus and readers are left alone. */
export class Lines {
  /** `build(item)` gives {root, draw(item, at)}; `isOrdered`: they stand in the order of the items. */
  constructor(place, key, build, isOrdered = true) {
    Object.assign(this, { place, key, build, isOrdered, byKey: new Map() });
  }

  draw(items) {
    const keys = new Set(items.map(this.key));
    for (const [key, { root }] of this.byKey) if (!keys.has(key)) { root.remove(); this.byKey.delete(key); }
    items.forEach((item, at) => this.drawOne(item, at));
  }

  drawOne(item, at) {
    const key = this.key(item);
    if (!this.byKey.has(key)) this.byKey.set(key, this.build(item));
    const { root } = this.byKey.get(key);
    this.byKey.get(key).draw(item, at);
    const there = this.isOrdered ? this.place.children[at] ?? null : null;
    const stays = this.isOrdered ? root === there || root.contains(document.activeElement) : root.parentNode === this.place;
    if (!stays) this.place.insertBefore(root, there);
  }
}

/** What tells of happenings. */
export class Teller extends EventTarget {
  tell(name, detail = {}) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Once, when nothing has come for so long. */
export function afterPause(ms, does) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(() => does(...given), ms); };
}

/** A page that comes in pieces is seen when they stand: nothing jumps under an eye or a hand. */
export function settle(root) {
  delete root.dataset.unsettled;
}

/** A key for the page itself: nobody writes, no dialog is open, nothing is held beside it. */
export const isShortcut = (event) => !isTyping(event.target) && !event.ctrlKey && !event.metaKey && !event.altKey
  && document.querySelector("dialog[open]") === null;

export const isTyping = (target) => target instanceof Element && target.matches("input:not([type=range]), select, textarea");

export function theme() {
  return document.documentElement.dataset.theme
    ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
}

export function onTheme(does) {
  addEventListener("gpudeck-theme", does);
  matchMedia("(prefers-color-scheme: light)").addEventListener("change", does);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure context, or the browser says no
  }
}
