// Actions that the hub wrote on a button (`data-act`, and `data-targets`: JSON of the ids): of a setting also what is asked (`data-title`,
// `data-fields`), what is sent of it (`data-setting`), and what names its target (`data-about`, with the amber line
// `data-caution` as long as there is no preview). `data-confirm`: how another person's request is ordered.

import { begin, pressed } from "../actions/actions.mjs";
import { send } from "../parts/api.mjs";
import { targetOf } from "../parts/dom.mjs";
import { fieldOf, filled, valuesOf } from "./orders.mjs";

/**
 * Acts upon the buttons within a place, whatever it is filled with.
 * @type {(place: HTMLElement) => void}
 */
export function listenForActs(place) {
  pressed(place, (event) => actOf(targetOf(event).closest("[data-act][data-targets]")));
}

/**
 * A command with its preview, of the button that was pressed.
 * @type {(button: HTMLElement | null) => ((event: MouseEvent) => unknown) | null}
 */
function actOf(button) {
  if (button === null) return null;
  const {
    act = "",
    targets = "[]",
    setting,
    title = "",
    fields = "[]",
    about = "[]",
    caution = "",
    confirm: way,
  } = button.dataset;
  const form =
    setting === undefined
      ? null
      : {
          ...settingForm(title, JSON.parse(fields), JSON.parse(setting)),
          about: JSON.parse(about),
          caution,
        };
  // By key it is a click, and no pointer is anywhere.
  return ({ clientX: x, clientY: y, type }) =>
    begin(
      act,
      JSON.parse(targets),
      type === "click" ? null : { x, y },
      form,
      ...(way === undefined ? [] : confirmed(JSON.parse(way))),
    );
}

/** @type {(title: string, fields: OrderField[], setting: object) => ActionForm} */
function settingForm(title, fields, setting) {
  const elements = fields.flatMap(fieldOf);
  return {
    title,
    isFilled: () => true,
    read: (root) => {
      const read = settingOf(setting, fields, root);
      return read === null ? null : { setting: read };
    },
    fields: (changed) => {
      // Not `change` of what is typed: it comes with the very click that confirms.
      for (const element of elements) element.addEventListener("input", changed);
      return elements;
    },
  };
}

/**
 * null: something is missing.
 * @type {(setting: object, fields: OrderField[], root: HTMLFormElement) => object | null}
 */
function settingOf(setting, fields, root) {
  const values = valuesOf(fields, new FormData(root));
  const isMissing = fields.some(
    ({ name, traits }) => traits?.required !== undefined && values[name] === null,
  );
  return isMissing || !root.checkValidity() ? null : filled(setting, values);
}

/**
 * Returns how another person's request is ordered after its preview, and the words on who asked.
 * @type {(way: { path: string, lead: string }) => any[]}
 */
const confirmed = ({ path, lead }) => [
  async (/** @type {any} */ { preview, reason }) => ({
    items: [await send("POST", path, { preview, reason })],
  }),
  lead,
];
