// Moments in the viewer's zone: fields for them, and the zone's name.

import { make, within } from "./dom.mjs";

export const HOUR_S = 3600;
/** @type {() => number} */
export const nowS = () => Date.now() / 1000;

/**
 * Returns the zone's offset at a moment, in seconds east of UTC. A span in which the clock is changed has
 * one for all of it.
 * @type {(seconds: number) => number}
 */
export const zoneOffset = (seconds) => -60 * new Date(seconds * 1000).getTimezoneOffset();

/** @type {(seconds: number) => string} */
function zoneWords(seconds) {
  const minutes = zoneOffset(seconds) / 60;
  const [sign, whole] = [minutes < 0 ? "−" : "+", Math.abs(minutes)];
  const offset =
    minutes === 0
      ? "UTC"
      : `UTC${sign}${Math.floor(whole / 60)}${whole % 60 ? `:${String(whole % 60).padStart(2, "0")}` : ""}`;
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  return timeZone === undefined || timeZone === "UTC"
    ? offset
    : `${timeZone.replaceAll("_", " ")}, ${offset}`;
}

// Not `datetime-local`: that shows 12-hour times to some, next to axes of 24 hours.
const WRITTEN = /^\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?$/;
/**
 * Parses a moment in the viewer's zone; NaN: it is none.
 * @type {(text: string) => number}
 */
export const secondsIn = (text) =>
  WRITTEN.test(text) ? Date.parse(text.replace(" ", "T")) / 1000 : NaN;

/** Two fields in their places; `changed(start, end)` when both say something that makes sense. */
export class Moments {
  /**
   * @param {HTMLElement} root
   * @param {string} name
   * @param {(start: number, end: number) => void} changed
   */
  constructor(root, name, changed) {
    this.zone = within(root, `#${name}-zone`);
    this.zone.textContent = zoneWords(nowS()); // what stands left of it would move when it came later
    this.fields = ["from", "to"].map((which) => {
      const field = make("input", {
        id: `${name}-${which}`,
        type: "text",
        maxlength: "19",
        required: "",
        autocomplete: "off",
        spellcheck: "false",
        placeholder: "2026-01-31 14:00:00",
        title: "Date and time of 24 hours, such as 2026-01-31 14:00",
      });
      within(root, `[data-moment="${name}-${which}"]`).append(field);
      field.addEventListener("change", () => {
        const moments = this.fields.map(({ value }) => secondsIn(value.trim()));
        const [start, end] = moments;
        this.fields.forEach((one, at) =>
          one.setAttribute("aria-invalid", String(Number.isNaN(moments[at]) || start >= end)),
        );
        if (start < end) changed(start, end);
      });
      return field;
    });
  }

  /**
   * Shows a span, but not in a field in which somebody types.
   * @type {(start: number, end: number) => void}
   */
  show(start, end) {
    [start, end].forEach((seconds, at) => {
      const field = this.fields[at];
      const text = localText(seconds).replace("T", " ");
      if (document.activeElement !== field && field.value !== text) field.value = text;
      field.removeAttribute("aria-invalid");
    });
    this.zone.textContent = zoneWords(end);
  }
}

/**
 * Formats a moment as a field for it does, to the second.
 * @type {(seconds: number) => string}
 */
export function localText(seconds) {
  const shifted = new Date((Math.round(seconds) + zoneOffset(seconds)) * 1000);
  return shifted.toISOString().slice(0, 19);
}
