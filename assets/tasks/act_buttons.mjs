// The acts that a person may do to one task, as buttons: on its row, in lists and in its details.

import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { make, redraw } from "../parts/dom.mjs";

/** Of those that fit the task, the rows of the table of actions that are in here. They act on the
 * task that they were drawn for. */
export function drawActs(place, task, person, traitsOf, { isIn = () => true, more = [] } = {}) {
  const may = task !== null && mayAct(person, task);
  const acts = may ? fitting(task).filter(isIn) : [];
  redraw(place, [task?.id, acts.map(({ id }) => id)], () => [...acts.map((row) => {
    const button = make("button", { type: "button", "data-act": row.id, ...traitsOf(row) }, row.label);
    const { id } = task;
    pressed(button, () => (event) => begin(row.id, [id], { x: event.clientX, y: event.clientY }));
    return button;
  }), ...more]);
}
