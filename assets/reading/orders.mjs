// Orders that the hub wrote on a button (`data-form`): what is asked in a dialog, and what is then sent where.
//
// {title, lead, verb, tone, fields, method, path, body, doing, done, undo, shows}. Without a title it is sent at once. `sends`
// has several of {method, path, body}, for one after the other. In `path` and `body`, "$name" is what the field `name`
// has; what a field has that is not there is left out; a body's own text that begins with $ has one more. In the texts
// of `done` and `shows`, {name} is a fact of the answer. A field is {name, label, type, value, hint, options, traits};
// `as`: how its text becomes a value, `empty`: its value without a text, `suggest`: texts to choose from, `only`:
// {other: values}, where it is there only while another field has one of these values. `ways`: a button for each option, which
// sends the form; `order`: a button for another order instead. "$name.part" is a part of a field's value.

import { areaField, ask, checkField, choiceField, copyable, newPassword, newPasswordFields, sentence, tell, textField } from "../parts/dialog.mjs";
import { make, show } from "../parts/dom.mjs";
import { moment } from "../parts/format.mjs";
import { change, onlyOf } from "../parts/password_prompt.mjs";
import { fill } from "./patch.mjs";
import { toast } from "../parts/toast.mjs";

const DAY_S = 86_400;
const SECONDS_OF = { minutes: 60, hours: 3600, days: DAY_S };
const isNumber = (type) => type === "number" || type in SECONDS_OF;

const READ_AS = {
  words: (text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))],
  commas: (text) => text.split(",").map((word) => word.trim()).filter(Boolean),
  headers: headersOf,
  json: JSON.parse,
  number: Number,
  seconds_from_now: (text) => Date.now() / 1000 + Number(text),
  days_from_now: (text) => Math.floor(Date.now() / 1000) + Number(text) * DAY_S,
};

/** Resolves with the hub's answer; null: it was put aside. `again` is called when it was taken back. */
export async function carryOut(order, again = () => {}) {
  let other = null;
  const answer = order.title === undefined ? await sendAtOnce(order) : await question(order, (one) => { other = one; });
  if (other !== null) return carryOut(other, again);
  if (answer !== null) conclude(order, answer, again);
  return answer;
}

/** `instead` is given an order that a button in the dialog has. */
function question({ title, lead = [], verb, tone, fields = [], ...order }, instead) {
  const places = fields.map((field) => [field, fieldOf(field)]);
  return ask({
    title, verb, tone, lead: [lead].flat().map(built), fields: places.flatMap(([, elements]) => elements),
    submit: (given) => sendAll(order, valuesOf(fields, given)),
    opened: (form) => {
      form.addEventListener("change", () => follow(form, places));
      follow(form, places);
      const ways = [...form.querySelectorAll(".ways button")];
      for (const way of ways) way.addEventListener("click", () => { form.elements[way.name].value = way.value; form.requestSubmit(); });
      if (ways.length > 0) show(form.querySelector("[type=submit]"), false);
      ways[0]?.focus();
      form.addEventListener("click", ({ target }) => {
        const button = target.closest("[data-form]");
        if (button === null) return;
        instead(JSON.parse(button.dataset.form));
        form.closest("dialog").close();
      });
    },
  });
}

async function sendAtOnce(order) {
  if (order.doing !== undefined) toast(order.doing);
  try {
    return (await sendAll(order, {})) ?? true;
  } catch (error) {
    toast(sentence(error.message));
    return null;
  }
}

/** Throws what the hub refuses. */
export async function sendAll({ sends, ...order }, values) {
  let answer = null;
  for (const one of sends ?? [order]) answer = await sendFilled(one, values);
  return answer;
}

function sendFilled({ method, path, body, only_of: number }, values) {
  const address = path.replace(/\$(\w+)/g, (_, name) => encodeURIComponent(values[name] ?? ""));
  return change(method, address, body === undefined ? undefined : filled(body, values), number === undefined ? {} : onlyOf(number));
}

export function conclude({ done, undo, shows }, answer, again) {
  if ((answer[shows?.copy] ?? null) !== null) showSecret(shows, answer);
  else if (done !== undefined) toast(worded(done, answer), undo === undefined ? null : async () => { await sendFilled(undo, {}); again(); });
}

/** What the answer has once, to be copied: it is kept nowhere else. */
function showSecret({ title, lead = [], copy, what, after = [], code }, answer) {
  const text = (words) => make("p", {}, worded(words, answer));
  const example = code === undefined ? null : make("div", { class: "command" }, make("code", {}, worded(code, answer)));
  tell(worded(title, answer), ...lead.map(text), copyable(answer[copy], what), ...after.map(text), example);
}

/** In one go, so that what a fact says is never a place for another. */
function worded(text, facts) {
  const all = { ...facts, origin: location.origin };
  return text.replace(/\{(\w+)(:moment)?\}/g, (place, name, isMoment) => (!Object.hasOwn(all, name) ? place : isMoment ? moment(all[name]) : String(all[name])));
}

/** A template with the fields' values. */
export function filled(template, values) {
  if (typeof template === "string") return /^\$[\w.]+$/.test(template) ? template.slice(1).split(".").reduce((value, name) => value?.[name], values) : template.replace(/^\$\$/, "$");
  if (Array.isArray(template)) return template.map((one) => filled(one, values));
  if (template === null || typeof template !== "object") return template;
  return Object.fromEntries(Object.entries(template).map(([name, part]) => [name, filled(part, values)]).filter(([, value]) => value !== undefined));
}

/** The elements of a field. */
export function fieldOf({ name, label, type = "text", value = null, hint = null, options = [], traits = {}, user = "", suggest = null, order = null }) {
  const usual = value === null ? {} : { value: String(value) };
  if (type === "problem") return [make("p", { class: "problem" }, label)];
  if (type === "area") return [areaField(name, label, value ?? "", traits, hint)];
  if (type === "choice") return [choiceField(name, label, options, String(value ?? options[0]?.[0] ?? ""), hint)];
  if (type === "ways") return waysOf(name, label, options);
  if (type === "order") return [make("button", { type: "button", class: "button", "data-form": JSON.stringify(order) }, label)];
  if (type === "new_password") return newPasswordFields(user);
  if (type === "check") return [checkedField(name, label, hint, value === true)];
  const list = suggest === null ? {} : { list: `suggest-${name}` };
  const field = textField(name, label, { ...(isNumber(type) ? { type: "number", step: "any" } : { type }), ...traits, ...usual, ...list }, hint);
  return suggest === null ? [field] : [field, make("datalist", { id: list.list }, suggest.map((one) => make("option", { value: one })))];
}

/** The first is also what Enter does. */
function waysOf(name, label, options) {
  const buttons = options.map(([value, words]) => make("button", { type: "button", class: "button first", name, value }, words));
  return [make("input", { type: "hidden", name, value: options[0][0] }), make("div", { class: "ways", role: "group", "aria-label": label }, buttons)];
}

function checkedField(name, label, hint, isChecked) {
  const field = checkField(name, label, hint);
  field.querySelector("input").checked = isChecked;
  return field;
}

/** Only the fields are there, and sent, that go with what the others have. */
function follow(form, places) {
  for (const [{ only = {} }, elements] of places) {
    const isThere = Object.entries(only).every(([name, values]) => values.includes(form.elements[name]?.value));
    for (const element of elements) {
      show(element, isThere);
      for (const control of element.querySelectorAll("input, select, textarea")) control.disabled = !isThere;
    }
  }
}

/** What was given, by the names of the fields that are there. A field that is left empty is null. */
export function valuesOf(fields, given) {
  const present = fields.filter(({ name, type }) => type === "check" || given.has(name));
  return Object.fromEntries(present.map((field) => [field.name, valueOf(field, given)]));
}

function valueOf({ name, type = "text", as, empty = null }, given) {
  if (type === "check") return given.has(name);
  if (type === "new_password") return newPassword(given);
  const text = type === "password" ? given.get(name) : given.get(name).trim();
  if (as !== undefined) return READ_AS[as](text);
  if (text === "") return empty;
  return isNumber(type) ? Number(text) * (SECONDS_OF[type] ?? 1) : text;
}

/** "Name: value" on each line. One without a colon becomes a name without a value, which the hub refuses in words. */
function headersOf(lines) {
  return Object.fromEntries(lines.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const at = line.indexOf(":");
    return at < 0 ? [line.trim(), ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
  }));
}

/** A text, or an element as the hub wrote it. */
function built(node) {
  if (typeof node === "string") return node;
  const place = make("div");
  fill(place, [node]);
  return place.firstElementChild;
}
