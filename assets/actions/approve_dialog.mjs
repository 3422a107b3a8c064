// The dialog of a second person, who approves what another has asked for.

/** @import { CommandStore } from "./commands_store.mjs" */

import { send } from "../parts/api.mjs";
import { lastWords, rowOf } from "./action_words.mjs";
import { itemCard } from "./action_items.mjs";
import { open, sentence, textField } from "../parts/dialog.mjs";
import { make, messageOf, say, show, within } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

/** @type {(field: HTMLElement) => HTMLInputElement} */
const inputIn = (field) => within(field, "input");

/**
 * The plan of somebody else, looked at before it is approved.
 * @type {(store: CommandStore, plan: Hub.ActionPlanView) => HTMLDialogElement}
 */
export function approveDialog(store, plan) {
  const problem = make("p", { class: "problem", role: "alert", hidden: "" });
  const password = textField(
    "password",
    "Your password",
    { type: "password", autocomplete: "current-password" },
    "The hub checks again and skips tasks that have changed.",
  );
  const list = make(
    "div",
    { "class": "act-place", "tabindex": "0", "role": "region", "aria-label": "Affected tasks" },
    make(
      "p",
      { class: "act-second" },
      `${plan.by.name} asks to ${plan.action} ${plural(plan.items.length, "job")}: “${plan.reason}”`,
    ),
    ...plan.items.map((item) => itemCard(item, [], false)),
    make("p", { class: "act-last-words" }, lastWords(plan.action, plan.params ?? {})),
  );
  const yes = make(
    "button",
    {
      type: "button",
      class: `button ${rowOf(plan.action).is_kill ? "danger" : "first"}`,
      onclick: () => approve(),
    },
    `Approve: ${plan.action} ${plural(plan.items.length, "job")}`,
  );
  const root = make(
    "form",
    { class: "act-body", onsubmit: (event) => event.preventDefault() },
    list,
    make("div", { class: "act-asked" }, password),
    problem,
    make(
      "div",
      { class: "dialog-foot act-foot" },
      make("button", { type: "button", class: "button", onclick: () => dialog.close() }, "Cancel"),
      yes,
    ),
  );
  const dialog = open("A second person is needed", root);
  dialog.classList.add("act-dialog");

  async function approve() {
    yes.disabled = true;
    show(problem, false);
    try {
      const secret = inputIn(password).value;
      if (secret !== "") await send("POST", "fresh", { password: secret });
      const answer = await send("POST", `plans/${encodeURIComponent(plan.id)}/approve`);
      store.begin(answer?.items ?? []);
      store.lookAtPlans();
      dialog.close();
    } catch (error) {
      say(problem, sentence(messageOf(error)));
      show(problem, true);
      yes.disabled = false;
    }
  }
  return dialog;
}
