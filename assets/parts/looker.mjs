// Base of what asks the hub again and again while somebody looks at it, and says how old it is if the hub
// does not answer.

import { isAtLeast, me } from "./account.mjs";
import { ask, sentence } from "./dialog.mjs";
import { Teller, sayOrHide } from "./dom.mjs";

/**
 * Base class; a subclass asks for an `A`, and takes it.
 * @template A
 * @template {object} [M={}]
 * @extends {Teller<M>}
 */
export class Looker extends Teller {
  /** @type {Person | null} */
  person = null;
  /** @type {number | undefined} */
  timer;

  /**
   * `what` is old where the hub does not answer, which `problem` says.
   * @param {LiveLink} live
   * @param {number} everyMs
   * @param {{ problem?: HTMLElement | null, what?: string }} traits
   */
  constructor(live, everyMs, { problem = null, what = "page" } = {}) {
    super();
    this.live = live;
    this.everyMs = everyMs;
    this.problem = problem;
    this.what = what;
    this.number = 0;
    this.isOld = false;
    this.waiting = 0; // requests that the hub has not answered
    live.addEventListener("back", () => {
      if (this.isDue) this.look();
    });
    document.addEventListener("visibilitychange", () => {
      if (this.waiting === 0) this.look();
    });
  }

  /** Tells whether to ask once the hub is back. */
  get isDue() {
    return true;
  }

  get isSeen() {
    return !document.hidden;
  }

  /** Finds out who looks, before the first look. */
  async meet() {
    this.person = await me().catch(() => null);
  }

  /** @type {(...how: any[]) => Promise<A>} */
  async ask(...how) {
    throw new Error(`nothing asks for ${how}`);
  }

  /** @type {(answer: A, ...how: any[]) => void} */
  take(answer) {
    throw new Error(`nothing takes ${answer}`);
  }

  /** @type {(role: string) => boolean} */
  may(role) {
    return isAtLeast(this.person, role);
  }

  /**
   * Now, and again in a while. Of several at once, the answer to the newest counts.
   * @type {(...how: any[]) => Promise<void>}
   */
  async look(...how) {
    clearTimeout(this.timer);
    if (!this.isSeen) return;
    await this.live.opened();
    const number = (this.number += 1);
    this.waiting += 1;
    try {
      const answer = await this.ask(...how);
      if (number !== this.number) return;
      this.take(answer, ...how);
      this.isOld = false;
      this.complain("");
    } catch (error) {
      if (number !== this.number) return;
      this.isOld = true;
      if (this.fail(/** @type {Error} */ (error)) === false) return;
    } finally {
      this.waiting -= 1;
    }
    this.timer = setTimeout(() => this.look(), this.everyMs);
  }

  /**
   * False: it is of no use to ask again.
   * @type {(error: Error) => boolean | void}
   */
  fail(error) {
    this.complain(`This ${this.what} is not up to date: ${sentence(error.message)}`);
  }

  /** @type {(words: string) => void} */
  complain(words) {
    if (this.problem !== null) sayOrHide(this.problem, words);
  }

  /**
   * Asks somebody, and looks at what has become of it. Null: it was put aside.
   * @type {(question: Question<any>) => Promise<any>}
   */
  async askAndLook(question) {
    const answer = await ask(question);
    await this.look();
    return answer;
  }
}
