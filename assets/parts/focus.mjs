// The keyboard's focus where the page is drawn again: while a dialog is open, or under somebody's hand. What had it is found by its
// id or key, or by what it does; where it is gone, the focus stays near its place and does not fall back to the page's beginning.

const STOPS =
  "a[href], button:not(:disabled), input:not(:disabled, [type=hidden]), select, textarea, summary";
const DEEDS = ["act", "targets", "form", "set", "view", "sort"]; // what a button does, in its dataset

/** @typedef {{ element: HTMLElement, name: string }} Step */

/**
 * Remembers where the focus is. The function that is returned brings it back there if it was lost meanwhile.
 * @type {() => () => void}
 */
export function rememberFocus() {
  /** @type {Step[]} */
  const trail = [];
  let one = document.activeElement;
  for (; one instanceof HTMLElement && one !== document.body; one = one.parentElement)
    trail.push({ element: one, name: trail.length === 0 ? ownName(one) : keyOf(one) });
  return () => {
    if (isLost()) refocus(trail);
  };
}

/**
 * Changes what is in a place; the focus stays in it, if it was there.
 * @type {(place: Element, change: () => void) => void}
 */
export function keepFocus(place, change) {
  const back = place.contains(document.activeElement) ? rememberFocus() : null;
  change();
  back?.();
}

/** A field of a dialog that was just closed has it until the next frame, and then nobody. */
function isLost() {
  const one = document.activeElement;
  return one === null || one === document.body || one.getClientRects().length === 0;
}

/** @type {(one: HTMLElement) => string} */
const keyOf = (one) => one.id || one.dataset.key || "";

/** @type {(one: HTMLElement) => string} */
const ownName = (one) =>
  keyOf(one) ||
  [...DEEDS.map((name) => one.dataset[name] ?? ""), one.ariaLabel ?? one.textContent].join("|");

/** @type {(one: HTMLElement) => boolean} */
const hasBox = (one) => one.isConnected && one.getClientRects().length > 0;

/** @type {(one: HTMLElement) => boolean} */
const canBeFocused = (one) => hasBox(one) && !one.matches(":disabled");

/** @type {(trail: Step[]) => void} */
function refocus(trail) {
  const [own, ...around] = trail;
  if (own === undefined) return;
  if (canBeFocused(own.element)) {
    own.element.focus({ preventScroll: true });
    return;
  }
  const at = around.findIndex(({ element }) => element.isConnected);
  if (at === -1) return;
  let { element: place } = around[at];
  let isRow = at === 0; // that which is left is about what the control was about, and no longer list
  for (const step of around.slice(0, at).reverse()) {
    if (step.name === "") continue;
    const again = findIn(place, step);
    if (again === null) {
      focusPlace(place);
      return;
    }
    [place, isRow] = [again, true];
  }
  const again = isRow || isOnlyOne(own.element) ? findIn(place, own) : null;
  if (again !== null && canBeFocused(again)) again.focus({ preventScroll: true });
  else if (isRow) focusBeside(place);
  else focusPlace(place);
}

/**
 * Tells whether its name says also which thing it is about: each row has an "End".
 * @type {(one: HTMLElement) => boolean}
 */
const isOnlyOne = ({ id, dataset: { targets, form } }) => Boolean(id || targets || form);

/** @type {(place: HTMLElement, step: Step) => HTMLElement | null} */
function findIn(place, { element: { localName }, name }) {
  /** @type {HTMLElement[]} */
  const alike = [...place.querySelectorAll(localName)].filter((one) => one instanceof HTMLElement);
  return alike.find((one) => (keyOf(one) || ownName(one)) === name) ?? null;
}

/**
 * The group of buttons, or the row, is there, and what had the focus is not: its first control has it.
 * @type {(place: HTMLElement) => void}
 */
function focusBeside(place) {
  /** @type {HTMLElement[]} */
  const stops = [...place.querySelectorAll(STOPS)].filter((one) => one instanceof HTMLElement);
  const stop = stops.find(canBeFocused);
  if (stop === undefined) focusPlace(place);
  else stop.focus({ preventScroll: true });
}

/**
 * The row is gone: the list itself has the focus, as a key must do nothing to another row.
 * @type {(place: HTMLElement) => void}
 */
function focusPlace(place) {
  /** @type {HTMLElement | null} */
  let one = place;
  while (one !== null && one !== document.body && !hasBox(one)) one = one.parentElement;
  if (one === null || one === document.body) return;
  if (!one.hasAttribute("tabindex")) {
    const there = one;
    there.tabIndex = -1;
    there.addEventListener("blur", () => there.removeAttribute("tabindex"), { once: true });
  }
  one.focus({ preventScroll: true });
}
