// The button that stops every action, and the line on every page that says so.

import { look, send } from "../parts/api.mjs";
import { textField } from "../parts/dialog.mjs";
import { button, byId, make, redraw, show } from "../parts/dom.mjs";
import { moment } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { change } from "../parts/password_prompt.mjs";

const EVERY_MS = 5_000;
const MOST_NAMED = 3;

/** @extends {Looker<Hub.HoldStateView>} */
export class Holds extends Looker {
  /** @type {Hub.HoldView | null} */
  fleet = null;
  /** @type {Hub.NodeHoldView[]} */
  nodes = [];

  /** @param {LiveLink} live */
  constructor(live) {
    super(live, EVERY_MS);

    this.isKnown = false;
    this.strip = byId("held");
    this.button = byId("hold");
    this.button.addEventListener("click", () => this.hold());
    live.addEventListener("hold", () => this.look());
    this.meet().then(() => {
      this.draw();
      this.look();
    });
  }

  get mayHold() {
    return this.may("operator");
  }

  ask() {
    return look("hold");
  }

  /** @type {(answer: Hub.HoldStateView) => void} */
  take({ fleet, nodes }) {
    this.fleet = fleet;
    this.nodes = nodes.filter(({ holds, wanted }) => wanted || holds.length > 0);
    this.isKnown = true;
    this.draw();
  }

  hold() {
    return this.askAndLook({
      title: "Stop all actions?",
      verb: "Stop all actions",
      lead: "Nothing is paused, ended or set on any node until someone resumes actions. Running jobs continue.",
      fields: [
        textField(
          "reason",
          "Reason (optional)",
          { maxlength: "500" },
          "Shown to everyone, on every page.",
        ),
      ],
      submit: (given) =>
        send("POST", "hold", {
          node: null,
          reason: String(given.get("reason")).trim() || "stopped from the web pages",
        }),
    });
  }

  /** @type {(node: string | null, name?: string | null) => Promise<any>} */
  release(node, name = null) {
    const query = node === null ? "" : `?node=${encodeURIComponent(node)}`;
    const where = name === null ? "" : ` on ${name}`;
    return this.askAndLook({
      title: `Resume actions${where}?`,
      verb: "Resume actions",
      lead: `People and rules can act${where} again.`,
      submit: () => change("DELETE", `hold${query}`),
    });
  }

  explain() {
    return this.askAndLook({
      title: "Why are actions stopped?",
      verb: "Save",
      fields: [
        textField(
          "reason",
          "Reason",
          { required: "", maxlength: "500" },
          "Shown to everyone, on every page.",
        ),
      ],
      submit: (given) => send("POST", "hold", { node: null, reason: given.get("reason") }),
    });
  }

  draw() {
    show(this.button, this.mayHold && this.isKnown && this.fleet === null);
    const isHeld = this.fleet !== null || this.nodes.length > 0;
    show(this.strip, isHeld);
    const words = !isHeld
      ? null
      : this.fleet === null
        ? this.nodeWords()
        : this.fleetWords(this.fleet);
    redraw(this.strip, [words, this.mayHold], () =>
      words !== null
        ? [make("strong", {}, words[0]), make("span", {}, words[1]), ...this.buttons()]
        : [],
    );
  }

  /** @type {(hold: Hub.HoldView) => [string, string]} */
  fleetWords(hold) {
    return ["All actions are stopped.", sayWho(hold)];
  }

  nodeWords() {
    const names = this.nodes
      .slice(0, MOST_NAMED)
      .map(({ host }) => host)
      .join(", ");
    const more =
      this.nodes.length > MOST_NAMED ? ` and ${this.nodes.length - MOST_NAMED} more` : "";
    const [first] = this.nodes;
    const isByFile = first.holds.some((hold) => hold.includes("/"));
    const detail =
      this.nodes.length === 1
        ? first.by
          ? sayWho(first)
          : isByFile
            ? `Set by a file on the node and removable only there: ${first.holds.join(", ")}.`
            : ""
        : "";
    return [`Actions are stopped on ${names}${more}.`, detail];
  }

  buttons() {
    if (!this.mayHold) return [];
    if (this.fleet !== null)
      return [
        button("Edit reason", () => this.explain()),
        button("Resume actions", () => this.release(null)),
      ];
    const ownHolds = this.nodes.filter(({ wanted }) => wanted);
    if (ownHolds.length === 1)
      return [button("Resume actions", () => this.release(ownHolds[0].node, ownHolds[0].host))];
    return ownHolds.length > 1
      ? [make("a", { class: "button small", href: "/settings#nodes" }, "Nodes")]
      : [];
  }
}

/** @type {(hold: Pick<Hub.NodeHoldView, "by" | "reason" | "since">) => string} */
function sayWho({ by, reason, since }) {
  const at = since === null || since === undefined ? "" : `, since ${moment(since)}`;
  return `${by ?? "Someone"}${at}${reason ? `: “${reason}”` : ""}`;
}
