// The acts that run, and the plans that wait for somebody else, from every page.

/** @import { CommandStore } from "./commands_store.mjs" */

import { isAtLeast, me } from "../parts/account.mjs";
import { send } from "../parts/api.mjs";
import { approveDialog } from "./approve_dialog.mjs";
import { idsOf, isOpen, undoOf } from "./action_words.mjs";
import { Progress } from "./action_progress.mjs";
import { begin } from "./actions.mjs";
import { sentence } from "../parts/dialog.mjs";
import {
  Lines,
  button,
  byId,
  isShortcut,
  make,
  messageOf,
  redraw,
  say,
  show,
} from "../parts/dom.mjs";
import { amount, plural, when } from "../parts/format.mjs";
import { toast } from "../parts/toast.mjs";

export class RunningActions {
  /** @type {Person | null} */
  person = null;

  /** @param {CommandStore} store */
  constructor(store) {
    this.store = store;
    this.isWide = false;

    this.root = byId("tray");
    this.button = make("button", {
      "type": "button",
      "class": "tray-button",
      "aria-expanded": "false",
      "aria-controls": "tray-list",
      "onclick": () => this.toggle(),
    });
    this.plans = make("ul", { class: "plans" });
    const list = make("ul", { class: "acts" });
    /** @type {Lines<Hub.CommandView, Progress>} */
    this.lines = new Lines(
      list,
      ({ id }) => id,
      (command) => new Progress(command, (one) => this.more(one)),
    );
    this.panel = make(
      "div",
      {
        "id": "tray-list",
        "class": "tray-panel",
        "tabindex": "0",
        "role": "region",
        "aria-label": "Running and waiting actions",
        "hidden": "",
      },
      this.plans,
      list,
    );
    this.root.append(this.panel, this.button);
    store.addEventListener("change", () => this.draw());
    store.addEventListener("plans", () => this.draw());
    document.addEventListener("keydown", (event) => this.onKey(event));
    me().then(
      (person) => {
        this.person = person;
        this.draw();
      },
      () => {},
    );
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    if (event.key === "Escape" && this.isWide && document.querySelector("dialog[open]") === null) {
      event.stopImmediatePropagation();
      this.toggle();
      this.button.focus();
    }
    if (event.key === "a" && isShortcut(event) && !this.root.hidden) {
      this.toggle();
      if (this.isWide) this.panel.focus();
    }
  }

  toggle() {
    this.isWide = !this.isWide;
    show(this.panel, this.isWide);
    this.button.setAttribute("aria-expanded", String(this.isWide));
  }

  draw() {
    const commands = this.store.listed();
    const { plans } = this.store;
    show(this.root, commands.length + plans.length > 0);
    if (commands.length + plans.length === 0 && this.isWide) this.toggle();
    const running = commands.filter(isOpen).length;
    const bad = commands.filter(({ state }) =>
      ["not_effective", "unkillable", "unknown"].includes(state),
    ).length;
    const words = [
      ...(running > 0 ? [`${running} running`] : []),
      ...(bad > 0 ? [`${bad} to review`] : []),
      ...(plans.length > 0 ? [`${plural(plans.length, "plan")} to approve`] : []),
      ...(running + bad + plans.length === 0 ? [`${amount(commands.length)} finished`] : []),
    ];
    say(this.button, `Actions: ${words.join(" · ")}`);
    this.root.dataset.tone = bad > 0 ? "bad" : plans.length > 0 ? "warn" : running > 0 ? "run" : "";
    this.lines.draw(commands);
    redraw(this.plans, [plans, this.person?.name], () => plans.map((plan) => this.planLine(plan)));
  }

  /** @type {(command: Hub.CommandView) => CommandAct[]} */
  more(command) {
    /** @type {CommandAct[]} */
    const more = undoOf(command).map(([action, word]) => [
      word,
      () => begin(action, idsOf(command)),
    ]);
    if (!isOpen(command)) more.push(["Dismiss", () => this.store.forget(command.id)]);
    return more;
  }

  /** @type {(plan: Hub.ActionPlanView) => HTMLElement} */
  planLine(plan) {
    const by = plan.by.name;
    const isOwn = by === this.person?.name;
    const mayApprove = !isOwn && isAtLeast(this.person, "operator");
    return make(
      "li",
      { "class": "plan", "data-plan": plan.id },
      make(
        "div",
        { class: "act-head" },
        make("strong", {}, `${plan.action} ${plural(plan.items.length, "job")}`),
        make("span", { class: "pill stale" }, "waits"),
      ),
      make(
        "p",
        { class: "act-target" },
        `${isOwn ? "You ask" : `${by} asks`}, ends ${when(plan.ends_at)}: “${plan.reason}”`,
      ),
      make(
        "div",
        { class: "act-more" },
        ...(mayApprove
          ? [
              button("Review and approve", () => approveDialog(this.store, plan), {
                class: "button small first",
              }),
            ]
          : []),
        ...(isOwn || mayApprove
          ? [button(isOwn ? "Withdraw" : "Decline", () => this.withdraw(plan))]
          : []),
      ),
    );
  }

  /** @type {(plan: Hub.ActionPlanView) => Promise<void>} */
  async withdraw(plan) {
    try {
      await send("DELETE", `plans/${encodeURIComponent(plan.id)}`);
      toast("Withdrawn; nothing was done.");
    } catch (error) {
      toast(sentence(messageOf(error)));
    }
    this.store.lookAtPlans();
  }
}
