// Start of an action, from any page: who may, what is previewed, and where it is followed.

/** @import { CommandStore } from "./commands_store.mjs" */

import { ActDialog } from "./action_dialog.mjs";
import { ACTS, isFit, isOpen } from "./action_words.mjs";
import { isAtLeast } from "../parts/account.mjs";

/** @type {CommandStore} */
let store;
let settled = -Infinity;

/** @type {(actsStore: CommandStore) => void} */
export function mountActions(actsStore) {
  store = actsStore;
  store.addEventListener("change", ({ detail }) => {
    if (detail !== null && !isOpen(detail)) settled = performance.now();
  });
}

/** Time at which an act was last seen to end: what it changed is in the answers soon after. */
export const settledAt = () => settled;

/**
 * May this person act on this task, as far as a page can know? The hub decides.
 * @type {(person: Person | null, task: Pick<Hub.TaskView, "user">) => boolean}
 */
export function mayAct(person, task) {
  if (isAtLeast(person, "operator")) return true;
  return (
    person !== null &&
    isAtLeast(person, "user") &&
    task.user !== null &&
    person.unix_names.includes(task.user)
  );
}

/**
 * A task of a simulator, or of a recording made by one: the kernel gives no process so high a
 * number.
 * @type {(task: Pick<Hub.TaskView, "pid">) => boolean}
 */
export const isMadeUp = ({ pid }) => pid > PID_MAX;
const PID_MAX = 2 ** 22;

/**
 * The acts that fit a task.
 * @type {(task: Hub.TaskView) => Hub.ActionRow[]}
 */
export const fitting = (task) => (isMadeUp(task) ? [] : ACTS.filter((row) => isFit(row, task)));

/**
 * The targets are ids, taken when the finger went down: no row that moved can change them.
 * @type {(action: string, ids: Iterable<string>, from?: Spot | null, form?: ActionForm | null,
 *   order?: SendOrder, lead?: string) => ActDialog | null}
 */
export function begin(action, ids, from = null, form = null, order = undefined, lead = undefined) {
  if (document.querySelector("dialog[open]") !== null) return null;
  return new ActDialog(store, action, [...ids], from, form, order, lead);
}

/**
 * A button, or a place with several, that acts on what it was pressed on and not on what lies there
 * at release. `act(event)` gives what is done at release; null: nothing was pressed.
 * @type {(button: HTMLElement, act: PressedAct) => void}
 */
export function pressed(button, act) {
  button.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const does = act(event);
    if (does === null) return;
    const armed = { x: event.clientX, y: event.clientY };
    /** @type {(up: PointerEvent) => void} */
    const release = (up) => {
      removeEventListener("pointerup", release, true);
      removeEventListener("pointercancel", cancel, true);
      if (Math.hypot(up.clientX - armed.x, up.clientY - armed.y) < 12) does(up);
    };
    const cancel = () => {
      removeEventListener("pointerup", release, true);
      removeEventListener("pointercancel", cancel, true);
    };
    addEventListener("pointerup", release, true);
    addEventListener("pointercancel", cancel, true);
  });
  // By key there is no pointer, and no way for the target to move away.
  button.addEventListener("click", (event) => {
    if (event.detail === 0) act(event)?.(event);
  });
}
