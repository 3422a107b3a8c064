// Parameters of an action: the fields of the dialog, and what the API is sent of them.

import { rowOf } from "./action_words.mjs";
import { choiceField, textField } from "../parts/dialog.mjs";
import { make, show, within } from "../parts/dom.mjs";

/** @type {(action: string, param: string) => boolean} */
const takes = (action, param) => rowOf(action).params.some(({ name }) => name === param);
const NEXT = "checkpoint_within_s";

/** @type {(field: HTMLElement) => HTMLSelectElement} */
const selectIn = (field) => within(field, "select");
const SIGNALS = [
  ["", "none: SIGTERM immediately"],
  ["USR1", "SIGUSR1"],
  ["USR2", "SIGUSR2"],
  ["INT", "SIGINT"],
  ["HUP", "SIGHUP"],
];

/**
 * {fields(changed), isFilled(form), read(form)}: `changed` is called when the preview must be made
 * again; `read` returns the parameters as the API takes them.
 * @type {(action: string) => ActionForm}
 */
export function paramForm(action) {
  if (takes(action, "text"))
    return {
      fields: notifyFields,
      isFilled: ({ elements }) => textOf(elements) !== "",
      read: ({ elements }) => ({ text: textOf(elements) }),
    };
  if (takes(action, "grace_s")) return { fields: endFields, isFilled: () => true, read: endParams };
  if (takes(action, NEXT))
    return {
      fields: (changed) => [
        make(
          "details",
          { class: "act-how" },
          make("summary", {}, "Options: immediately"),
          make("div", { class: "act-how-fields" }, nextField(changed)),
        ),
      ],
      isFilled: () => true,
      read: pauseParams,
    };
  return { fields: () => [], isFilled: () => true, read: () => ({}) };
}

/**
 * A node of before does not know it, so that it is said only where it is wanted.
 * @type {(elements: NamedForm["elements"]) => { [NEXT]?: number }}
 */
const nextParams = (elements) => {
  const most = bounded(elements[NEXT], 0, 3_600, 0);
  return most > 0 ? { [NEXT]: most } : {};
};

/** @type {(changed: () => void) => HTMLElement} */
function nextField(changed) {
  const field = textField(
    NEXT,
    "Maximum wait for its next checkpoint, in seconds",
    { type: "number", min: "0", max: "3600", step: "1", value: "0" },
    "0: do not wait. If none comes in time, nothing is touched.",
  );
  field.addEventListener("input", changed);
  return field;
}

/** @type {(form: NamedForm) => object} */
function pauseParams(form) {
  const params = nextParams(form.elements);
  within(form, ".act-how > summary").textContent = `Options: ${afterWords(params)}`;
  return params;
}

/** @type {(params: { [NEXT]?: number }) => string} */
const afterWords = ({ [NEXT]: most }) => (most ? "after its next checkpoint" : "immediately");

/** @type {(elements: NamedForm["elements"]) => string} */
const textOf = ({ text }) => text.value.trim();

/** @type {(changed: () => void) => HTMLElement[]} */
function notifyFields(changed) {
  const text = make("textarea", {
    "name": "text",
    "rows": "3",
    "maxlength": "1000",
    "id": "act-text",
    "aria-required": "true",
    "oninput": changed,
  });
  return [
    make("p", { class: "field" }, make("label", { for: "act-text" }, "Message to the owner"), text),
  ];
}

/** @type {(changed: () => void) => HTMLElement[]} */
function endFields(changed) {
  const grace = textField(
    "grace_s",
    "Grace period, in seconds",
    { type: "number", min: "1", max: "600", step: "1", value: "30" },
    "Time between SIGTERM and SIGKILL.",
  );
  const signal = choiceField("checkpoint_signal", "Checkpoint signal first", SIGNALS, "");
  const wait = textField("checkpoint_wait_s", "Wait for the checkpoint, in seconds", {
    type: "number",
    min: "0",
    max: "3600",
    step: "1",
    value: "120",
  });
  show(wait, false);
  signal.addEventListener("change", () => show(wait, selectIn(signal).value !== ""));
  for (const field of [grace, signal, wait]) field.addEventListener("input", changed);
  return [
    make(
      "details",
      { class: "act-how" },
      make("summary", {}, "Options: 30 s grace period, no checkpoint signal"),
      make("div", { class: "act-how-fields" }, nextField(changed), grace, signal, wait),
    ),
  ];
}

/** @type {(form: NamedForm) => object} */
function endParams(form) {
  const { elements } = form;
  const signal = elements.checkpoint_signal.value;
  const summary = within(form, ".act-how > summary");
  const next = nextParams(elements);
  const grace = bounded(elements.grace_s, 1, 600, 30);
  summary.textContent = `Options: ${afterWords(next)}, ${grace} s grace period,  ${signal === "" ? "no checkpoint signal" : `SIG${signal} first`}`;
  return signal === ""
    ? { grace_s: grace, ...next }
    : {
        grace_s: grace,
        ...next,
        checkpoint_signal: signal,
        checkpoint_wait_s: bounded(elements.checkpoint_wait_s, 0, 3_600, 120),
      };
}

/** @type {(input: HTMLInputElement, low: number, high: number, otherwise: number) => number} */
function bounded(input, low, high, otherwise) {
  const value = Number.parseFloat(input.value);
  return Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : otherwise;
}
