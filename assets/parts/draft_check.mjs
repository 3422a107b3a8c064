// What the hub says of a draft while somebody writes it. Of several at once, the newest answer counts.

import { afterPause } from "./dom.mjs";

export class DraftCheck {
  /** `ask()` sends the draft; `draw({problems, ...})` shows the answer; `wordsOf(error)`: why there is none. */
  constructor(waitMs, ask, draw, wordsOf = ({ message }) => message) {
    Object.assign(this, { ask, draw, wordsOf, number: 0 });
    this.soon = afterPause(waitMs, () => this.look());
  }

  /** At once; nothing is thrown. */
  look() {
    return this.now().catch(() => null);
  }

  async now() {
    const mine = (this.number += 1);
    const put = (found) => { if (mine === this.number) this.draw(found); };
    try {
      const found = await this.ask();
      put(found);
      return found;
    } catch (error) {
      put({ problems: [{ field: "", message: this.wordsOf(error) }] });
      throw error;
    }
  }
}
