// The acts that a person may do to one task, as buttons: on its row and in lists.

import { refusalOf } from "../actions/action_words.mjs";
import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { make, redraw } from "../parts/dom.mjs";

/**
 * Draws a button for each action in here that fits the task. They act on the
 * task that they were drawn for.
 * @param {Element} place
 * @param {Hub.TaskView | null} task
 * @param {Person | null} person
 * @param {(row: Hub.ActionRow) => Traits} traitsOf
 * @param {{ isIn?: (row: Hub.ActionRow) => boolean, more?: HTMLElement[] }} choice
 */
export function drawActs(place, task, person, traitsOf, { isIn = () => true, more = [] } = {}) {
  const acts = task !== null && mayAct(person, task) ? fitting(task).filter(isIn) : [];
  const refusals = acts.map(({ id }) => (task === null ? "" : refusalOf(id, task)));
  redraw(place, [task?.id, acts.map(({ id }) => id), refusals], () => [
    ...acts.map((row, at) => {
      const why = refusals[at] === "" ? {} : { disabled: "", title: refusals[at] };
      const button = make(
        "button",
        { "type": "button", "data-act": row.id, ...traitsOf(row), ...why },
        row.label,
      );
      const ids = task === null ? [] : [task.id];
      if (refusals[at] !== "") return button;
      pressed(
        button,
        () =>
          ({ clientX: x, clientY: y }) =>
            begin(row.id, ids, { x, y }),
      );
      return button;
    }),
    ...more,
  ]);
}
