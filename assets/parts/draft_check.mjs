// What the hub says of a draft while somebody writes it. Of several at once, the newest answer counts.

import { afterPause } from "./dom.mjs";

/** @template {{ problems: { field: string, message: string }[] }} D */
export class DraftCheck {
  /**
   * `ask()` sends the draft; `draw` shows the answer; `wordsOf(error)`: why there is none.
   * @param {number} waitMs
   * @param {() => Promise<D>} ask
   * @param {(answer: D) => void} draw
   * @param {(error: any) => string} wordsOf
   */
  constructor(waitMs, ask, draw, wordsOf = ({ message }) => message) {
    this.ask = ask;
    this.draw = draw;
    this.wordsOf = wordsOf;
    this.number = 0;
    this.soon = afterPause(waitMs, () => this.look());
  }

  /** At once; nothing is thrown. */
  look() {
    return this.now().catch(() => null);
  }

  async now() {
    const mine = (this.number += 1);
    /** @type {(found: D) => void} */
    const put = (found) => { if (mine === this.number) this.draw(found); };
    try {
      const found = await this.ask();
      put(found);
      return found;
    } catch (error) {
      put(/** @type {D} */ ({ problems: [{ field: "", message: this.wordsOf(error) }] }));
      throw error;
    }
  }
}
