// Requests to a callback of Dash (dashboard/pages/graphs.py, reading.py): the component's `asked` is set, and what
// comes back is an event of its element.

import { byId } from "./dom.mjs";

const WAIT_MS = 40_000;

export class DashAnswers {
  /** @type {((answer: any) => void) | undefined} */
  waiting;

  /** @param {string} id */
  constructor(id) {
    this.id = id;
    this.number = 0;
    // The last to be asked counts: the others end as they began, unanswered.
    byId(id).addEventListener("answered", (event) => {
      const { detail } = /** @type {CustomEvent<{ number: number }>} */ (event);
      if (detail.number === this.number) this.waiting?.(detail);
    });
  }

  /**
   * Throws if the hub answers with a problem, or not at all.
   * @type {(request: object) => Promise<any>}
   */
  async ask(request) {
    const number = (this.number += 1);
    const answer = await new Promise((resolve, reject) => {
      this.waiting = resolve;
      setTimeout(() => reject(new Error("The hub did not answer.")), WAIT_MS);
      globalThis.dash_clientside.set_props(this.id, { asked: { ...request, number } });
    });
    if (answer.problem !== undefined) throw new Error(answer.problem);
    return answer;
  }
}
