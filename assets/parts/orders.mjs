// Orders that the hub wrote on a button (`data-form`): what is asked in a dialog, and what is then sent where.
//
// {title, lead, verb, tone, fields, method, path, body, done, undo}. Without a title it is sent at once. A field is
// {name, label, type, value, hint, options, traits}. In `path` and `body`, "$name" is what the field `name` has.

import { areaField, ask, checkField, choiceField, newPassword, newPasswordFields, sentence, textField } from "./dialog.mjs";
import { change, onlyOf } from "./password_prompt.mjs";
import { toast } from "./toast.mjs";

const SECONDS_OF = { minutes: 60, hours: 3600, days: 86_400 };
const isNumber = (type) => type === "number" || type in SECONDS_OF;

/** Resolves with the hub's answer; null: it was put aside. */
export async function carryOut(order) {
  const answer = order.title === undefined ? await sendAtOnce(order) : await ask({
    title: order.title, lead: order.lead ?? [], verb: order.verb, tone: order.tone, fields: (order.fields ?? []).flatMap(fieldOf),
    submit: (given) => sendFilled(order, valuesOf(order.fields ?? [], given)),
  });
  if (answer !== null && order.done !== undefined) toast(order.done, order.undo === undefined ? null : () => sendFilled(order.undo, {}));
  return answer;
}

async function sendAtOnce(order) {
  try {
    return (await sendFilled(order, {})) ?? true;
  } catch (error) {
    toast(sentence(error.message));
    return null;
  }
}

function sendFilled({ method, path, body, only_of: number }, values) {
  const address = path.replace(/\$(\w+)/g, (_, name) => encodeURIComponent(values[name] ?? ""));
  return change(method, address, body === undefined ? undefined : filled(body, values), number === undefined ? {} : onlyOf(number));
}

/** A template with the fields' values. */
export function filled(template, values) {
  if (typeof template === "string") return /^\$\w+$/.test(template) ? values[template.slice(1)] ?? null : template;
  if (Array.isArray(template)) return template.map((one) => filled(one, values));
  if (template === null || typeof template !== "object") return template;
  return Object.fromEntries(Object.entries(template).map(([name, part]) => [name, filled(part, values)]));
}

/** The elements of a field. */
export function fieldOf({ name, label, type = "text", value = null, hint = null, options = [], traits = {}, user = "" }) {
  const usual = value === null ? {} : { value: String(value) };
  if (type === "area") return [areaField(name, label, value ?? "", traits, hint)];
  if (type === "choice") return [choiceField(name, label, options, String(value ?? options[0]?.[0] ?? ""), hint)];
  if (type === "new_password") return newPasswordFields(user);
  if (type !== "check") return [textField(name, label, { ...(isNumber(type) ? { type: "number", step: "any" } : { type }), ...traits, ...usual }, hint)];
  const field = checkField(name, label, hint);
  field.querySelector("input").checked = value === true;
  return [field];
}

/** What was given, by the fields' names. A field that is left empty is null. */
export function valuesOf(fields, given) {
  return Object.fromEntries(fields.map(({ name, type = "text" }) => {
    if (type === "check") return [name, given.has(name)];
    if (type === "new_password") return [name, newPassword(given)];
    const text = type === "password" ? given.get(name) : (given.get(name) ?? "").trim();
    if (text === "") return [name, null];
    return [name, isNumber(type) ? Number(text) * (SECONDS_OF[type] ?? 1) : text];
  }));
}
