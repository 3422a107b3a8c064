// What asks the hub again and again while somebody looks at it, and says how old it is if the hub
// does not answer.

import { isAtLeast, me } from "./account.mjs";
import { ask, sentence } from "./dialog.mjs";
import { Teller, sayOrHide } from "./dom.mjs";

/** Of a subclass: `ask(...how)` gives what `take(answer, ...how)` draws. */
export class Looker extends Teller {
  /** `what` is old where the hub does not answer, which `problem` says. */
  constructor(live, everyMs, { problem = null, what = "page" } = {}) {
    super();
    Object.assign(this, { live, everyMs, problem, what, number: 0, person: null, isOld: false });
    live.addEventListener("back", () => { if (this.isDue) this.look(); });
    document.addEventListener("visibilitychange", () => this.look());
  }

  /** When the hub is here again. */
  get isDue() { return true; }

  get isSeen() { return !document.hidden; }

  /** Who looks, before the first look. */
  async meet() {
    this.person = await me().catch(() => null);
  }

  may(role) {
    return isAtLeast(this.person, role);
  }

  isMine(owner) {
    return this.person?.unix_names.includes(owner) ?? false;
  }

  /** As far as a page can know; the hub decides. */
  mayChange(owner) {
    return this.may("operator") || (this.may("user") && this.isMine(owner));
  }

  /** Now, and again in a while. Of several at once, the answer to the newest counts. */
  async look(...how) {
    clearTimeout(this.timer);
    if (!this.isSeen) return;
    await this.live.opened();
    const number = (this.number += 1);
    try {
      const answer = await this.ask(...how);
      if (number !== this.number) return;
      this.take(answer, ...how);
      this.isOld = false;
      this.complain("");
    } catch (error) {
      if (number !== this.number) return;
      this.isOld = true;
      if (this.fail(error) === false) return;
    }
    this.timer = setTimeout(() => this.look(), this.everyMs);
  }

  /** False: it is of no use to ask again. */
  fail(error) {
    this.complain(`This ${this.what} is not up to date: ${sentence(error.message)}`);
  }

  complain(words) {
    if (this.problem !== null) sayOrHide(this.problem, words);
  }

  /** Asks somebody, and looks at what has become of it. Null: it was put aside. */
  async asked(question) {
    const answer = await ask(question);
    await this.look();
    return answer;
  }

  /** What wants no more than a yes, and is hard to take back. */
  sure(title, verb, lead, submit) {
    return this.asked({ title, verb, lead, submit, tone: "bad" });
  }
}
