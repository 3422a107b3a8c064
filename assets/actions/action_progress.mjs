// Progress of an action: each step, then each observation by itself. Drawn in place.

import { STEPS, checks, isOpen, stateWords, targetWords, tone, verb } from "./action_words.mjs";
import { button, make, redraw, say, show } from "../parts/dom.mjs";

/** @type {Record<string, string>} */
const SHORT = {
  requested: "Requested",
  queued: "Queued",
  sent: "Sent",
  accepted: "Accepted",
  acting: "Acting",
  done: "Verified",
};

export class Progress {
  /**
   * `more(command)` gives [[word, does]] for what may follow, such as taking a pause back.
   * @param {Hub.CommandView} command
   * @param {(command: Hub.CommandView) => CommandAct[]} more
   */
  constructor(command, more = () => []) {
    this.more = more;
    this.what = make("strong", {});
    this.pill = make("span", { class: "pill" });
    this.target = make("p", { class: "act-target" });
    this.steps = make(
      "ol",
      { "class": "act-steps", "aria-label": "Steps" },
      ...STEPS.map((step) => make("li", { "data-step": step }, SHORT[step])),
    );
    this.sentence = make("p", { class: "act-sentence", role: "status" });
    this.checks = make("ul", { class: "act-checks" });
    this.foot = make("div", { class: "act-more" });
    this.root = make(
      "li",
      { class: "act" },
      make("div", { class: "act-head" }, this.what, this.pill),
      this.target,
      this.steps,
      this.sentence,
      this.checks,
      this.foot,
    );
    this.draw(command);
  }

  /** @type {(command: Hub.CommandView) => void} */
  draw(command) {
    this.root.dataset.command = command.id;
    this.root.dataset.state = command.state;
    say(this.what, verb(command.action));
    say(this.pill, stateWords(command.state));
    this.pill.className = `pill ${tone(command.state)}`;
    this.target.title = command.command ?? "";
    say(
      this.target,
      command.node === null && command.task_id === null ? "the fleet" : targetWords(command),
    );
    this.drawSteps(command);
    say(this.sentence, sentenceOf(command));
    this.drawChecks(command);
    this.drawMore(command);
  }

  /** @type {(command: Hub.CommandView) => void} */
  drawSteps({ state, history = [] }) {
    const states = new Set([...history.map((one) => one.state), state]);
    const reached = Math.max(...STEPS.map((step, at) => (states.has(step) ? at : -1)));
    for (const [at, item] of [...this.steps.children].entries()) {
      const mark =
        at < reached || state === "done"
          ? "passed"
          : at === reached && isOpen({ state })
            ? "now"
            : at === reached
              ? "passed"
              : "";
      if (item.className !== mark) item.className = mark;
    }
  }

  /** @type {(command: Hub.CommandView) => void} */
  drawChecks(command) {
    const rows = checks(command);
    show(this.checks, rows.length > 0);
    redraw(this.checks, rows, () =>
      rows.map(([label, held, words]) =>
        make(
          "li",
          { "class": held === true ? "yes" : held === false ? "no" : "open", "data-check": label },
          make(
            "span",
            {
              "class": "check-mark",
              "role": "img",
              "aria-label": held === true ? "yes" : held === false ? "no" : "not known",
            },
            held === true ? "✓" : held === false ? "✕" : "–",
          ),
          make("strong", {}, label),
          make("span", {}, held === null ? "not reported" : words),
        ),
      ),
    );
  }

  /** @type {(command: Hub.CommandView) => void} */
  drawMore(command) {
    const more = this.more(command);
    show(this.foot, more.length > 0);
    redraw(this.foot, [command.id, more.map(([word]) => word)], () =>
      more.map(([word, does]) => button(word, () => does(command))),
    );
  }
}

/** @type {(command: Hub.CommandView) => string} */
function sentenceOf({ sentence, step, refusal, state }) {
  if (sentence) return sentence;
  return refusal?.sentence ?? (step || stateWords(state));
}
