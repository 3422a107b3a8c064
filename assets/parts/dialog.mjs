// Native dialogs: a question with fields, one that only wants a yes, and something to be copied.

import { copyText, make, messageOf, options, say, sayOrHide, show, within } from "./dom.mjs";
import { rememberFocus } from "./focus.mjs";
import { capital } from "./format.mjs";

const LONG_FROM = 5; // fields

let count = 0;

/**
 * Resolves with what `submit` gave, or with null if it was put aside. What `submit` throws is
 * shown.
 * @type {<A>(question: Question<A>) => Promise<Exclude<A, void> | true | null>}
 */
export function ask({
  title,
  lead = [],
  fields = [],
  verb,
  tone = "first",
  submit,
  opened = () => {},
}) {
  return new Promise((resolve) => {
    /** @type {any} */
    let answer = null;
    const problem = make("p", { class: "problem", role: "alert", hidden: "" });
    const yes = make("button", { type: "submit", class: `button ${tone}` }, verb);
    const form = make(
      "form",
      { class: "form dialog-body" },
      ...paragraphs(lead),
      ...fields,
      problem,
      make(
        "div",
        { class: "dialog-foot" },
        make(
          "button",
          { type: "button", class: "button", onclick: () => dialog.close() },
          "Cancel",
        ),
        yes,
      ),
    );
    const dialog = open(title, form, () => resolve(answer));
    opened(form);
    keepTyped(dialog, form, problem);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (yes.disabled) return;
      yes.disabled = true;
      show(problem, false);
      try {
        answer = (await submit(new FormData(form))) ?? true;
        dialog.close();
      } catch (error) {
        sayOrHide(problem, sentence(messageOf(error)));
      } finally {
        yes.disabled = false;
      }
    });
  });
}

/**
 * A key that is pressed by mistake takes nothing away that took time to write.
 * @type {(dialog: HTMLDialogElement, form: HTMLFormElement, problem: HTMLElement) => void}
 */
function keepTyped(dialog, form, problem) {
  let isTyped = false;
  form.addEventListener("input", () => {
    isTyped = form.querySelectorAll("input, select, textarea").length >= LONG_FROM;
  });
  dialog.addEventListener("cancel", (event) => {
    if (!isTyped) return;
    isTyped = false;
    event.preventDefault();
    sayOrHide(problem, "Your changes would be lost. Press Esc again to discard them.");
    problem.scrollIntoView({ block: "nearest" });
  });
}

/**
 * A dialog of any content; `closed` is called at its end.
 * @type {(title: string, content: Node, closed?: () => void) => HTMLDialogElement}
 */
export function open(title, content, closed = () => {}) {
  const id = `dialog-title-${(count += 1)}`;
  /** @type {HTMLDialogElement} */
  const dialog = make(
    "dialog",
    { "class": "dialog", "aria-labelledby": id },
    make(
      "div",
      { class: "dialog-head" },
      make("h2", { id }, title),
      make(
        "button",
        {
          "type": "button",
          "class": "icon-button",
          "aria-label": "Close",
          "title": "Close (Esc)",
          "onclick": () => dialog.close(),
        },
        make("span", { class: "icon icon-close" }),
      ),
    ),
    content,
  );
  const refocus = rememberFocus();
  dialog.addEventListener("close", () => {
    dialog.remove();
    refocus();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  within(
    dialog,
    "input:not([type=hidden]):not([readonly]):not(.unseen), select, .dialog-foot .first, .dialog-foot .button",
  )?.focus();
  return dialog;
}

/**
 * A line to be taken elsewhere.
 * @param {string} text
 * @param {string} what
 */
export function copyable(text, what) {
  const button = make(
    "button",
    { "type": "button", "class": "button", "aria-label": `Copy ${what}` },
    "Copy",
  );
  const code = make("code", { tabindex: "0" }, text);
  button.addEventListener("click", async () => {
    const isCopied = await copyText(text);
    say(button, isCopied ? "Copied" : "Press Ctrl+C");
    if (!isCopied) getSelection()?.selectAllChildren(code);
  });
  return make("div", { class: "command" }, code, button);
}

/**
 * A dialog that asks nothing.
 * @type {(title: string, ...content: Children[]) => HTMLDialogElement}
 */
export function tell(title, ...content) {
  const foot = make(
    "div",
    { class: "dialog-foot" },
    make(
      "button",
      { type: "button", class: "button first", onclick: () => dialog.close() },
      "Done",
    ),
  );
  const dialog = open(title, make("div", { class: "dialog-body" }, ...content, foot));
  return dialog;
}

/**
 * @param {string} name
 * @param {string} label
 * @param {Traits} traits
 * @param {string | null} hint
 */
export function textField(name, label, traits = {}, hint = null) {
  return field(
    name,
    label,
    make("input", {
      name,
      autocomplete: "off",
      autocapitalize: "none",
      spellcheck: "false",
      maxlength: "1024",
      ...traits,
    }),
    hint,
  );
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} value
 * @param {Traits} traits
 * @param {string | null} hint
 */
export function areaField(name, label, value, traits = {}, hint = null) {
  const area = make("textarea", {
    name,
    rows: "4",
    spellcheck: "false",
    autocapitalize: "none",
    ...traits,
  });
  area.value = value;
  return field(name, label, area, hint);
}

/**
 * @param {string} name
 * @param {string} label
 * @param {Choices} choices
 * @param {string} chosen
 * @param {string | null} hint
 */
export function choiceField(name, label, choices, chosen, hint = null) {
  const select = make("select", { name }, options(choices));
  select.value = chosen;
  return field(name, label, select, hint);
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string | null} hint
 */
export function checkField(name, label, hint = null) {
  return make(
    "label",
    { class: "check" },
    make("input", { type: "checkbox", name }),
    make("span", {}, label, hint === null ? null : make("small", {}, hint)),
  );
}

/**
 * @param {string} name
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string | null} hint
 */
function field(name, label, control, hint) {
  const id = `field-${name}-${(count += 1)}`;
  control.id = id;
  if (hint !== null) control.setAttribute("aria-describedby", `${id}-hint`);
  return make(
    "p",
    { class: "field" },
    make("label", { for: id }, label),
    control,
    hint === null ? null : make("small", { id: `${id}-hint` }, hint),
  );
}

/**
 * New password, twice; the name is there for password managers.
 * @param {string} name
 */
export function newPasswordFields(name) {
  const traits = { type: "password", autocomplete: "new-password", minlength: "12", required: "" };
  return [
    make("input", {
      "class": "unseen",
      "type": "text",
      "autocomplete": "username",
      "value": name,
      "tabindex": "-1",
      "aria-hidden": "true",
      "readonly": "",
    }),
    textField(
      "password",
      "New password",
      traits,
      "At least 12 characters; three or four words work well.",
    ),
    textField("again", "Repeat the password", traits),
  ];
}

/** @type {(given: FormData) => string} */
export function newPassword(given) {
  if (given.get("password") !== given.get("again")) throw new Error("The passwords do not match.");
  return String(given.get("password"));
}

/** @type {(lead: string | Node | (string | Node)[]) => Node[]} */
const paragraphs = (lead) =>
  [lead].flat().map((one) => (typeof one === "string" ? make("p", {}, one) : one));

/** @type {(text: string) => string} */
export const sentence = (text) => {
  const full = capital(text);
  return /[.!?…]$/.test(full) ? full : `${full}.`;
};
