// What is read on the Alerts page (dashboard/pages/alerts.py), where the rest is watched: the resolved alerts, and the
// rehearsals of a rule.

import { sentence } from "../parts/dialog.mjs";
import { make, sayOrHide } from "../parts/dom.mjs";
import { change } from "../parts/password_prompt.mjs";
import ReadPage from "../reading/read_page.mjs";

const SOON_MS = 250;

export class PastAlerts extends ReadPage {
  get key() { return "alerts"; }

  listen(store) {
    super.listen(store);
    this.live.addEventListener("alert", ({ detail }) => {
      if (detail.state !== "ended") return;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.look(), SOON_MS);
    });
  }

  /** A place for the rehearsals of a rule, shown to those who may change its mode; the next answer of the hub fills it. */
  rehearsalsOf(rule) {
    const problem = make("p", { class: "problem", role: "alert", hidden: "" });
    const list = make("div", { id: "rule-rehearsals", onclick: ({ target }) => { const button = target.closest("[data-approve]"); if (button !== null) this.approve(button, rule, problem); } }, make("p", {}, "Loading …"));
    return make("div", {}, list, problem);
  }

  async approve(button, rule, problem) {
    button.disabled = true;
    try {
      await change("POST", `rules/backtests/${encodeURIComponent(button.dataset.approve)}/approve`);
      sayOrHide(problem, "");
      this.choose({ rehearsed: rule }, false);
    } catch (error) {
      sayOrHide(problem, sentence(error.message));
      button.disabled = false;
    }
  }
}
