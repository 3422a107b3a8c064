// Panels of a GPU or a node as the hub writes them (dashboard/pages/machine_panels.py): service, limits, MPS, quotas,
// facts. The hub is asked once in a while, sooner after an action, and answers what has changed.

import { settledAt } from "../actions/actions.mjs";
import { DashAnswers } from "../parts/dash_answers.mjs";
import { byId, make, targetOf } from "../parts/dom.mjs";
import { carryOut } from "./orders.mjs";
import { put } from "./patch.mjs";
import { listenForActs } from "./written_acts.mjs";

const ANSWER = "page-answer";
const SOON_MS = 700;
const SOON_FOR_MS = 3_000;
const LATE_MS = 3_000; // so long the rest of the page waits for them

export class MachinePanels {
  /** @type {{ gpu?: string, node?: string }} */
  view = {};
  /** @type {Record<string, string>} */
  have = {};
  /** @type {Record<string, WrittenNodes>} */
  parts = {};
  askedAt = -Infinity;
  isAsking = false;
  number = 0; // of the last request
  /** @type {Promise<unknown>} */
  shown = Promise.resolve();

  /**
   * `page`: the key of the page; the buttons are within `root`.
   * @param {string} page
   * @param {HTMLElement} root
   * @param {LiveLink} live
   */
  constructor(page, root, live) {
    this.page = page;
    this.answers = new DashAnswers(ANSWER);
    // A little less: the page comes by as often, and never quite on time.
    this.pauseMs = 750 * JSON.parse(byId(ANSWER).dataset.reading ?? "").everyS;
    // What was asked of a hub that went away is answered by nobody.
    live.addEventListener("back", () => {
      this.isAsking = false;
    });
    listenForActs(root);
    root.addEventListener("click", (event) => this.onClick(event));
  }

  /** @type {(view: { gpu?: string, node?: string }) => void} */
  start(view) {
    this.view = view;
    this.have = {};
    this.parts = {};
    this.isAsking = false;
    this.askedAt = -Infinity;
  }

  /**
   * Asks if it is time to, and the last request has ended: those of a slow hub do not pile up. Resolves
   * once they are shown, or late.
   * @type {(isNow?: boolean) => Promise<unknown>}
   */
  refresh(isNow = false) {
    const now = performance.now();
    const isSoon = now - settledAt() < SOON_FOR_MS;
    const isEarly = now - this.askedAt < (isSoon ? SOON_MS : this.pauseMs);
    if (!isNow && (this.isAsking || isEarly)) return this.shown;
    this.askedAt = now;
    const late = new Promise((resolve) => setTimeout(resolve, LATE_MS));
    this.shown = Promise.race([this.ask(this.view), late]);
    return this.shown;
  }

  /**
   * A failure leaves the panels as they are.
   * @type {(view: MachinePanels["view"]) => Promise<void>}
   */
  async ask(view) {
    this.isAsking = true;
    const number = (this.number += 1);
    const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
    const answer = await this.answers
      .ask({ page: this.page, view: { ...view, zone: timeZone ?? "UTC" }, have: this.have })
      .catch(() => null);
    if (number !== this.number || view !== this.view) return;
    this.isAsking = false;
    if (answer === null) return;
    Object.assign(this.have, answer.digests);
    Object.assign(this.parts, answer.parts);
    this.draw();
  }

  /** Puts the panels into their places, as far as these are there. */
  draw() {
    for (const [id, nodes] of Object.entries(this.parts)) {
      const place = byId(id);
      if (place !== null) put(place, nodes);
    }
  }

  /** @type {(event: MouseEvent) => Promise<void>} */
  async onClick(event) {
    /** @type {HTMLElement | null} */
    const button = targetOf(event).closest("[data-form]");
    if (button === null) return;
    await carryOut(JSON.parse(button.dataset.form ?? ""));
    this.refresh(true);
  }
}

/**
 * A place for a panel.
 * @type {(name: string) => HTMLElement}
 */
export const placeOf = (name) => make("div", { id: `panel-${name}` });
