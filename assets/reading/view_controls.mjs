// Controls of a page's view: `data-view` is the field of the view that a select, an input or a button with
// `data-value` shows and changes; what has `data-while` is shown while the view has these values. With `data-as="moment"` the field is UTC seconds, written in the viewer's zone.

import { allWithin, show, within } from "../parts/dom.mjs";
import { localText, secondsIn } from "../parts/time_ranges.mjs";

export const TYPED = ":is(input:not([type=checkbox], [type=radio]), textarea)[data-view]";

/** @type {(value: unknown) => string} */
export const textOf = (value) => (value === null || value === undefined ? "" : String(value));

/**
 * Shows a view in its controls, but not in one in which somebody types.
 * @type {(root: HTMLElement, view: Values) => void}
 */
export function showView(root, view) {
  /** @type {Control[]} */
  const controls = allWithin(root, "[data-view]");
  for (const control of controls) showField(control, textOf(view[control.dataset.view ?? ""]));
  /** @type {HTMLElement[]} */
  const parts = allWithin(root, "[data-while]");
  for (const part of parts)
    show(
      part,
      Object.entries(JSON.parse(part.dataset.while ?? "")).every(
        ([name, value]) => textOf(view[name]) === value,
      ),
    );
}

/** @type {(control: Control, value: string) => void} */
function showField(control, value) {
  const text =
    control.dataset.as === "moment" && value !== ""
      ? localText(Number(value)).replace("T", " ")
      : value;
  if (control.matches("button"))
    control.setAttribute("aria-pressed", String(control.dataset.value === value));
  else if (control.type === "checkbox") control.checked = value === "true";
  else if (control.type === "radio") control.checked = control.value === value;
  else if (
    control.value !== text &&
    (control !== document.activeElement || control.matches("select"))
  )
    control.value = text;
}

/**
 * The fields that a control sets now; null: what is in it is not valid. An option may set others by
 * its `data-set`.
 * @type {(control: Control) => Values | null}
 */
export function fieldsOf(control) {
  const set = control.selectedOptions?.[0]?.dataset.set;
  if (set !== undefined) return JSON.parse(set);
  if (!control.validity.valid) return null;
  const value = valueOf(control);
  return value === null ? null : { [control.dataset.view ?? ""]: value };
}

/** @type {(control: Control) => string | null} */
function valueOf(control) {
  if (control.type === "checkbox") return String(control.checked);
  const text = control.value.trim();
  if (control.dataset.as !== "moment" || text === "") return text;
  const seconds = secondsIn(text);
  control.setAttribute("aria-invalid", String(Number.isNaN(seconds)));
  return Number.isNaN(seconds) ? null : String(seconds);
}

/**
 * The control or button of a key: `data-shortcut="/"`; of several, with spaces between.
 * @type {(root: HTMLElement, key: string) => boolean}
 */
export function useShortcut(root, key) {
  const control = within(root, `[data-shortcut~="${CSS.escape(key)}"]`);
  if (control === null || !control.checkVisibility()) return false;
  if (control.matches("button, a")) control.click();
  else control.focus();
  return true;
}
