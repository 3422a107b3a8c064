// Elements from values. Text from nodes is hostile: it only ever becomes a text node.

export const byId = (id) => document.getElementById(id);

export function make(tag, traits = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(traits)) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Touches the page only when something changed, so that a selection or a screen reader is left alone. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, isShown) {
  if (element.hidden === isShown) element.hidden = !isShown;
}

/** A page that comes in pieces is seen when they stand: nothing jumps under an eye or a hand. */
export function settle(root) {
  delete root.dataset.unsettled;
}

export const isTyping = (target) => target instanceof Element && target.matches("input:not([type=range]), select, textarea");

export function theme() {
  return document.documentElement.dataset.theme
    ?? (matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark");
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure context, or the browser says no
  }
}
