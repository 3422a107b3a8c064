// The button that stops every action, and the line on every page that says so.

import { look, send } from "../parts/api.mjs";
import { textField } from "../parts/dialog.mjs";
import { button, byId, make, redraw, say, show } from "../parts/dom.mjs";
import { moment, when } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { change } from "../parts/password_prompt.mjs";

const EVERY_MS = 5_000;
const MOST_NAMED = 3;

/** @extends {Looker<Hub.HoldStateView, { change: object }>} */
export class Holds extends Looker {
  /** @type {Hub.HoldView | null} */
  fleet = null;
  /** @type {Hub.NodeHoldView[]} */
  nodes = [];
  text = "";

  /** @param {LiveLink} live */
  constructor(live) {
    super(live, EVERY_MS);

    this.isKnown = false;
    this.strip = byId("held");
    this.button = byId("hold");
    this.button.addEventListener("click", () => this.hold(null));
    live.addEventListener("hold", () => this.look());
    /** Resolves once the person's rights and the holds are known. */
    this.ready = this.meet().then(() => {
      this.draw();
      return this.look();
    });
  }

  get mayHold() {
    return this.may("operator");
  }

  ask() {
    return look("hold");
  }

  /** @type {(answer: Hub.HoldStateView) => void} */
  take(answer) {
    const text = JSON.stringify(answer);
    if (text !== this.text) {
      this.text = text;
      this.fleet = answer.fleet;
      this.nodes = answer.nodes.filter(({ holds, wanted }) => wanted || holds.length > 0);
      this.isKnown = true;
      this.tell("change");
    }
    this.draw();
  }

  /** @type {(node: string) => Hub.NodeHoldView | null} */
  of(node) {
    return this.nodes.find((one) => one.node === node) ?? null;
  }

  /**
   * `name`: of a node; else it is the whole fleet.
   * @type {(node: string | null, name?: string | null) => Promise<any>}
   */
  hold(node, name = null) {
    const [title, where] =
      name === null ? ["Stop all actions", "on any node"] : [`Stop actions on ${name}`, "there"];
    return this.askAndLook({
      title: `${title}?`,
      verb: title,
      lead: `Nothing is paused, ended or set ${where} until someone resumes actions. Running jobs continue.`,
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
          node,
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

  /** @type {(node: string | null) => Promise<any>} */
  explain(node) {
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
      submit: (given) => send("POST", "hold", { node, reason: given.get("reason") }),
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
        button("Edit reason", () => this.explain(null)),
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

/**
 * A line about one node's hold, with its button; it follows what changes.
 * @type {(holds: Holds, node: string, host: string) => HTMLElement}
 */
export function holdLine(holds, node, host) {
  const words = make("span", {});
  const act = button("", null);
  const line = make("p", { class: "node-hold" }, words, act);
  const draw = () => {
    const hold = holds.of(node) ?? holds.fleet;
    const isHeld = hold !== null;
    say(
      words,
      isHeld
        ? `Actions on ${host} are stopped${hold.since ? ` since ${when(hold.since)}` : ""}.`
        : `Actions on ${host} are allowed.`,
    );
    say(act, isHeld ? "Resume actions" : "Stop actions here");
    show(
      act,
      holds.mayHold && holds.fleet === null && (!isHeld || holds.of(node)?.wanted === true),
    );
    act.onclick = () => (isHeld ? holds.release(node, host) : holds.hold(node, host));
    line.classList.toggle("is-held", isHeld);
  };
  holds.addEventListener("change", draw);
  draw();
  return line;
}
