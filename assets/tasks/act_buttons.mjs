// The acts that a person may do to one task, as buttons: on its row, in lists and in its details.

import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { make, redraw } from "../parts/dom.mjs";

/** Of those that fit the task: `only` these. They act on the task that they were drawn for. */
export function drawActs(place, task, person, traitsOf, { only = null, more = [] } = {}) {
  const may = task !== null && person !== null && mayAct(person, task);
  const acts = may ? fitting(task).filter(([action]) => only === null || only.includes(action)) : [];
  redraw(place, [task?.id, acts], () => [...acts.map(([action, word]) => {
    const button = make("button", { type: "button", "data-act": action, ...traitsOf(action, word) }, word);
    const { id } = task;
    pressed(button, () => (event) => begin(action, [id], { x: event.clientX, y: event.clientY }));
    return button;
  }), ...more]);
}
