// Tips with the meaning of a name: under a pointer that rests, at the keyboard's focus, at a touch. One
// card for the whole page, above everything and never under the pointer.

import { allWithin, make, say, show, targetOf } from "./dom.mjs";

const REST_MS = 250;
const GAP = 6;

/** @type {HTMLElement} */
let card;
/** @type {HTMLElement | null} */
let owner = null;
/** @type {number | undefined} */
let resting;

/**
 * `text` is shown wherever `element` is asked about.
 * @type {(element: HTMLElement, text: string) => void}
 */
export function explain(element, text) {
  if (element.dataset.tip === text) return;
  element.dataset.tip = text;
  if (owner === element) open(element);
}

/**
 * Makes `root` one stop of the Tab key; the arrows go from one explained name to the next.
 * @type {(root: HTMLElement) => void}
 */
export function explainedList(root) {
  root.dataset.tips = "";
}

/**
 * The first that is in sight is where the Tab key stops, unless one is already.
 * @type {(root: HTMLElement) => void}
 */
export function settleList(root) {
  const rows = stops(root);
  if (!rows.some((row) => row.tabIndex === 0)) choose(rows, rows[0]);
}

export function mountTips() {
  card = make("div", { id: "tip", class: "tip-card", role: "tooltip", hidden: "" });
  document.addEventListener("pointerover", onOver);
  document.addEventListener("pointerup", onTouch);
  document.addEventListener("focusin", onFocus);
  document.addEventListener("focusout", close);
  document.addEventListener("keydown", onKey, { capture: true });
  addEventListener("scroll", onScroll, { capture: true, passive: true });
}

/** @type {(target: EventTarget | null) => HTMLElement | null} */
const explained = (target) => (target instanceof Element ? target.closest("[data-tip]") : null);

/** @type {(event: PointerEvent) => void} */
function onOver({ target, pointerType }) {
  if (pointerType === "touch") return;
  clearTimeout(resting);
  const element = explained(target);
  if (element === owner) return;
  if (owner !== null && owner !== document.activeElement) close();
  if (element !== null)
    resting = setTimeout(
      () => element.isConnected && element.matches(":hover") && open(element),
      REST_MS,
    );
}

// A list that opens under the finger would lie under the card.
/** @type {(event: PointerEvent) => void} */
function onTouch({ target, pointerType }) {
  if (pointerType !== "touch") return;
  const element = explained(target);
  if (element === null || element === owner || element.matches("select")) close();
  else open(element);
}

/** @type {(event: FocusEvent) => void} */
function onFocus(event) {
  const target = targetOf(event);
  const list = target.closest("[data-tips]");
  if (list !== null && "tip" in target.dataset) choose(stops(list), target);
  if ("tip" in target.dataset && target.matches(":focus-visible")) open(target);
}

/** @type {(event: KeyboardEvent) => void} */
function onKey(event) {
  if (event.key === "Escape" && owner !== null) {
    // At the focus it is what Esc closes first; a card under the pointer just goes as well.
    if (owner === document.activeElement) event.stopPropagation();
    close();
  }
  const target = targetOf(event);
  const list = target.closest?.("[data-tips]");
  if (list === null || list === undefined || !("tip" in target.dataset)) return;
  const rows = stops(list);
  const at = rows.indexOf(target);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  event.stopPropagation();
  const next = rows[Math.min(rows.length - 1, Math.max(0, to))];
  next.scrollIntoView({ block: "nearest" });
  next.focus({ preventScroll: true, focusVisible: true });
}

// The focus moves on and scrolls: its card goes with it. Under a pointer something else is by now.
function onScroll() {
  if (owner !== null && owner === document.activeElement) place(owner.getBoundingClientRect());
  else close();
}

/** @type {(root: Element) => HTMLElement[]} */
const stops = (root) =>
  allWithin(root, "[data-tip][tabindex]").filter((row) => row.checkVisibility());

/** @type {(rows: HTMLElement[], chosen: HTMLElement | undefined) => void} */
function choose(rows, chosen) {
  for (const row of rows) row.tabIndex = row === chosen ? 0 : -1;
}

/** @type {(element: HTMLElement) => void} */
function open(element) {
  if (owner !== null && owner !== element) close();
  owner = element;
  // A modal dialog covers the rest of the page, and screen readers skip what is outside every landmark.
  const home = element.closest("dialog") ?? document.querySelector("main") ?? document.body;
  if (card.parentElement !== home) home.append(card);
  element.setAttribute("aria-describedby", card.id);
  say(card, element.dataset.tip ?? "");
  show(card, true);
  place(element.getBoundingClientRect());
}

/** @type {(at: DOMRect) => void} */
function place(at) {
  const { offsetWidth: width, offsetHeight: height } = card;
  const isBelow = at.bottom + GAP + height <= innerHeight;
  const top = isBelow ? at.bottom + GAP : Math.max(4, at.top - GAP - height);
  const left = Math.max(4, Math.min(at.left, innerWidth - width - 4));
  card.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

function close() {
  clearTimeout(resting);
  if (owner === null) return;
  owner.removeAttribute("aria-describedby");
  owner = null;
  show(card, false);
}
