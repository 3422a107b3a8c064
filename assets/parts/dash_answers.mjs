// Requests to a callback of Dash (dashboard/pages/graphs.py, reading.py): the component's `asked` is set, and what
// comes back is an event of its element.

const WAIT_MS = 40_000;

export class DashAnswers {
  constructor(id) {
    Object.assign(this, { id, number: 0 });
    // The last to be asked counts: the others end as they began, unanswered.
    document.getElementById(id).addEventListener("answered", ({ detail }) => { if (detail.number === this.number) this.waiting?.(detail); });
  }

  /** Throws if the hub answers with a problem, or not at all. */
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
