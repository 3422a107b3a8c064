// Orders that the hub wrote on a button (`data-form`): what is asked in a dialog, and what is then sent where.
//
// {title, lead, verb, tone, fields, method, path, body, doing, done, undo, shows}. Without a title it is sent at once. `sends`
// has several of {method, path, body}, for one after the other. In `path` and `body`, "$name" is what the field `name`
// has; what a field has that is not there is left out; a body's own text that begins with $ has one more. In `undo`,
// "$name" is a fact of the answer, as {name} is in the texts of `done` and `shows`. `is_paired`: the fields stand two in
// a line where there is room. A field is {name, label, type, value, hint, options, traits};
// `as`: how its text becomes a value, `empty`: its value without a text, `times`: the field whose number it is multiplied
// by, `suggest`: texts to choose from, `only`:
// {other: values}, where it is there only while another field has one of these values. `ways`: a button for each option, which
// sends the form; `order`: a button for another order instead. "$name.part" is a part of a field's value.

import {
  areaField,
  ask,
  checkField,
  choiceField,
  copyable,
  newPassword,
  newPasswordFields,
  sentence,
  tell,
  textField,
} from "../parts/dialog.mjs";
import { allWithin, make, messageOf, show, targetOf, within } from "../parts/dom.mjs";
import { moment } from "../parts/format.mjs";
import { change, onlyOf } from "../parts/password_prompt.mjs";
import { fill } from "./patch.mjs";
import { secondsIn } from "../parts/time_ranges.mjs";
import { toast } from "../parts/toast.mjs";

const DAY_S = 86_400;
/** @type {Record<string, number>} */
const SECONDS_OF = { minutes: 60, hours: 3600, days: DAY_S };
/** @type {(type: string) => boolean} */
const isNumber = (type) => type === "number" || type in SECONDS_OF;

/** @type {Record<string, (text: string) => unknown>} */
const READ_AS = {
  words: (text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))],
  // Without comments.
  lines: (text) =>
    text
      .split("\n")
      .map((line) => line.split("#")[0].trim())
      .filter(Boolean),
  commas: (text) =>
    text
      .split(",")
      .map((word) => word.trim())
      .filter(Boolean),
  headers: headersOf,
  json: JSON.parse,
  number: Number,
  seconds_from_now: (text) => Date.now() / 1000 + Number(text),
  // A list of it, or of nothing.
  one: (text) => (text === "" ? [] : [text]),
  // What is left out has the hub's own default.
  percent_in_milli: (text) => (text === "" ? undefined : 10 * Number(text)),
  local_time: secondsIn,
  days_from_now: (text) => Math.floor(Date.now() / 1000) + Number(text) * DAY_S,
};

/**
 * Resolves with the hub's answer; null: it was put aside. `again` is called when it was taken back. `view`: values for an
 * order without a question.
 * @type {(order: Order, again?: () => unknown, view?: Values) => Promise<any>}
 */
export async function carryOut(order, again = () => {}, view = {}) {
  let other = null;
  const answer =
    order.title === undefined
      ? await sendAtOnce(order, view)
      : await question(order, (one) => {
          other = one;
        });
  if (other !== null) return carryOut(other, again, view);
  if (answer !== null) conclude(order, answer, again);
  return answer;
}

/**
 * `instead` is given an order that a button in the dialog has.
 * @type {(order: Order, instead: (order: Order) => void) => Promise<any>}
 */
function question(
  { title = "", lead = [], verb, tone, fields = [], is_paired: isPaired = false, ...order },
  instead,
) {
  /** @type {[OrderField, HTMLElement[]][]} */
  const places = fields.map((field) => [field, fieldOf(field)]);
  const elements = places.flatMap(([, of]) => of);
  return ask({
    title,
    verb,
    tone,
    lead: leadOf(lead).map(elementOf),
    fields: isPaired ? [make("div", { class: "paired-fields" }, ...elements)] : elements,
    submit: (given) =>
      sendAll(order, valuesOf(fields, given)).catch((error) => {
        throw namedAsAsked(error, fields, order);
      }),
    opened: (form) => {
      form.addEventListener("change", () => follow(form, places));
      follow(form, places);
      /** @type {HTMLButtonElement[]} */
      const ways = allWithin(form, ".ways button");
      for (const way of ways)
        way.addEventListener("click", () => {
          /** @type {HTMLInputElement} */ (within(form, `input[name="${way.name}"]`)).value =
            way.value;
          form.requestSubmit();
        });
      if (ways.length > 0) show(within(form, "[type=submit]"), false);
      ways[0]?.focus();
      form.addEventListener("click", (event) => {
        /** @type {HTMLElement | null} */
        const button = targetOf(event).closest("[data-form]");
        if (button === null) return;
        instead(JSON.parse(button.dataset.form ?? ""));
        form.closest("dialog")?.close();
      });
    },
  });
}

/**
 * Renames the field in an error: its label, not its name in the body.
 * @type {(error: Error, fields: OrderField[], order: OrderRequest) => Error}
 */
function namedAsAsked(error, fields, { body }) {
  const [, name, words] = /^(\w+): (.*)$/s.exec(error.message) ?? [];
  const field = fields.find((one) => name !== undefined && body?.[name] === `$${one.name}`);
  return field === undefined ? error : new Error(`${field.label}: ${words}`);
}

/** @type {(order: Order, view: Values) => Promise<any>} */
async function sendAtOnce(order, view) {
  if (order.doing !== undefined) toast(order.doing);
  try {
    return (await sendAll(order, view)) ?? true;
  } catch (error) {
    toast(sentence(messageOf(error)));
    return null;
  }
}

/**
 * Throws what the hub refuses.
 * @type {(order: Omit<Order, "verb">, values: Values) => Promise<any>}
 */
export async function sendAll({ sends, ...order }, values) {
  let answer = null;
  for (const one of sends ?? [order]) answer = await sendFilled(one, values);
  return answer;
}

/** @type {(request: OrderRequest, values: Values) => Promise<any>} */
function sendFilled({ method, path, body, only_of: number }, values) {
  const address = path.replace(/\$(\w+)/g, (_, name) => encodeURIComponent(values[name] ?? ""));
  return change(
    method,
    address,
    body === undefined ? undefined : filled(body, values),
    number === undefined ? {} : onlyOf(number),
  );
}

/** @type {(order: Order, answer: any, again: () => unknown) => void} */
export function conclude({ done, undo, shows }, answer, again) {
  if (shows !== undefined && (answer[shows.copy] ?? null) !== null) showSecret(shows, answer);
  else if (done !== undefined)
    toast(
      worded(done, answer),
      undo === undefined
        ? null
        : async () => {
            await sendFilled(undo, answer === true ? {} : answer);
            again();
          },
    );
}

/**
 * Fields of the view that are facts of the answer.
 * @type {(sets: Record<string, string>, answer: Values) => Values}
 */
export const factsOf = (sets, answer) =>
  Object.fromEntries(Object.entries(sets).map(([field, fact]) => [field, answer[fact]]));

/**
 * A dialog that the hub wrote: its title and what stands in it. `follow` is given the order of a button there.
 * @type {(written: Written[], follow: (order: Order) => void) => void}
 */
export function tellWritten([title, ...content], follow) {
  const place = make("div");
  fill(place, content);
  const dialog = tell(String(title), ...place.childNodes);
  dialog.addEventListener("click", (event) => {
    /** @type {HTMLElement | null} */
    const button = targetOf(event).closest("[data-form]");
    if (button === null) return;
    dialog.close();
    follow(JSON.parse(button.dataset.form ?? ""));
  });
}

/**
 * Shows a secret of the answer, to be copied: it is stored nowhere else.
 * @type {(secret: Secret, answer: any) => void}
 */
function showSecret({ title, lead = [], copy, what, after = [], code, place }, answer) {
  /** @type {(words: string) => HTMLElement} */
  const text = (words) => make("p", {}, worded(words, answer));
  const example =
    code === undefined
      ? null
      : make("div", { class: "command" }, make("code", {}, worded(code, answer)));
  tell(
    worded(title, answer),
    ...lead.map(text),
    copyable(answer[copy], what),
    ...after.map(text),
    example,
    place === undefined ? null : make("div", { id: place, class: "dialog-place" }),
  );
}

/**
 * Fills facts into a text, in one pass, so that a fact's value is never a place for another.
 * @type {(text: string, facts: Values) => string}
 */
function worded(text, facts) {
  /** @type {Values} */
  const all = { ...facts, origin: location.origin };
  return text.replace(/\{(\w+)(?::(moment|words))?\}/g, (place, name, kind) => {
    if (!Object.hasOwn(all, name)) return place;
    if (kind === "moment") return moment(all[name]);
    return kind === "words" ? String(all[name]).replaceAll("_", " ") : String(all[name]);
  });
}

/**
 * A template with the fields' values.
 * @type {(template: any, values: Values) => any}
 */
export function filled(template, values) {
  if (typeof template === "string")
    return /^\$[\w.]+$/.test(template)
      ? template
          .slice(1)
          .split(".")
          .reduce((value, name) => value?.[name], values)
      : template.replace(/^\$\$/, "$");
  if (Array.isArray(template)) return template.map((one) => filled(one, values));
  if (template === null || typeof template !== "object") return template;
  return Object.fromEntries(
    Object.entries(template)
      .map(([name, part]) => [name, filled(part, values)])
      .filter(([, value]) => value !== undefined),
  );
}

/**
 * The elements of a field.
 * @type {(field: OrderField) => HTMLElement[]}
 */
export function fieldOf({
  name,
  label,
  type = "text",
  value = null,
  hint = null,
  options = [],
  traits = {},
  user = "",
  suggest = null,
  order = null,
}) {
  const usual = value === null ? {} : { value: String(value) };
  if (type === "problem") return [make("p", { class: "problem" }, label)];
  if (type === "area") return [areaField(name, label, value ?? "", traits, hint)];
  if (type === "choice")
    return [choiceField(name, label, options, String(value ?? options[0]?.[0] ?? ""), hint)];
  if (type === "ways") return waysOf(name, label, options);
  if (type === "order")
    return [
      make(
        "button",
        { "type": "button", "class": "button", "data-form": JSON.stringify(order) },
        label,
      ),
    ];
  if (type === "new_password") return newPasswordFields(user);
  if (type === "check") return [checkedField(name, label, hint, value === true)];
  const list = suggest === null ? {} : { list: `suggest-${name}` };
  const field = textField(
    name,
    label,
    {
      ...(isNumber(type) ? { type: "number", step: "any" } : { type }),
      ...traits,
      ...usual,
      ...list,
    },
    hint,
  );
  return suggest === null
    ? [field]
    : [
        field,
        make(
          "datalist",
          { id: list.list },
          suggest.map((one) => make("option", { value: one })),
        ),
      ];
}

/**
 * The first is also what Enter does.
 * @type {(name: string, label: string, options: [string, string][]) => HTMLElement[]}
 */
function waysOf(name, label, options) {
  const buttons = options.map(([value, words]) =>
    make("button", { type: "button", class: "button first", name, value }, words),
  );
  return [
    make("input", { type: "hidden", name, value: options[0][0] }),
    make("div", { "class": "ways", "role": "group", "aria-label": label }, buttons),
  ];
}

/**
 * @type {(name: string, label: string, hint: string | null, isChecked: boolean) => HTMLElement}
 */
function checkedField(name, label, hint, isChecked) {
  const field = checkField(name, label, hint);
  /** @type {HTMLInputElement} */
  const input = within(field, "input");
  input.checked = isChecked;
  return field;
}

/**
 * Shows the fields that apply, by the values of the others; only these are sent.
 * @type {(form: HTMLFormElement, places: [OrderField, HTMLElement[]][]) => void}
 */
function follow(form, places) {
  for (const [{ only = {} }, elements] of places) {
    const { elements: controls } = /** @type {NamedForm} */ (form);
    const isThere = Object.entries(only).every(([name, values]) =>
      values.includes(controls[name]?.value),
    );
    for (const element of elements) {
      show(element, isThere);
      /** @type {Field[]} */
      const inside = allWithin(element, "input, select, textarea");
      for (const control of inside) control.disabled = !isThere;
    }
  }
}

/**
 * Returns the values by the names of the fields that are shown. An empty field is null.
 * @type {(fields: OrderField[], given: FormData) => Values}
 */
export function valuesOf(fields, given) {
  const present = fields.filter(({ name, type }) => type === "check" || given.has(name));
  return Object.fromEntries(present.map((field) => [field.name, valueOf(field, given)]));
}

/** @type {(field: OrderField, given: FormData) => unknown} */
function valueOf({ name, type = "text", as, empty = null, times }, given) {
  if (type === "check") return given.has(name);
  if (type === "new_password") return newPassword(given);
  const whole = String(given.get(name));
  const text = type === "password" ? whole : whole.trim();
  if (as !== undefined) return READ_AS[as](text);
  if (text === "") return empty;
  const unit = times === undefined ? (SECONDS_OF[type] ?? 1) : Number(given.get(times));
  return isNumber(type) ? Number(text) * unit : text;
}

/**
 * "Name: value" on each line. One without a colon becomes a name without a value, which the hub
 * refuses in words.
 * @type {(lines: string) => Record<string, string>}
 */
function headersOf(lines) {
  return Object.fromEntries(
    lines
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => {
        const at = line.indexOf(":");
        return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }),
  );
}

/**
 * Texts and elements; one element is a list, too.
 * @type {(lead: Written | Written[]) => Written[]}
 */
const leadOf = (lead) => /** @type {Written[]} */ ([lead].flat());

/**
 * A text, or an element as the hub wrote it.
 * @type {(node: Written) => string | Node}
 */
function elementOf(node) {
  if (typeof node === "string") return node;
  const place = make("div");
  fill(place, [node]);
  return place.firstElementChild ?? "";
}
