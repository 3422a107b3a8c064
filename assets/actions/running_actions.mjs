// The acts that run, and the plans that wait for somebody else, from every page.

import { me } from "../parts/account.mjs";
import { send } from "../parts/api.mjs";
import { approveDialog } from "./action_dialog.mjs";
import { isOpen, undoOf } from "./action_words.mjs";
import { Progress } from "./action_progress.mjs";
import { begin, isAtLeast } from "./actions.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, isTyping, make, say, show } from "../parts/dom.mjs";
import { plural, when } from "../parts/format.mjs";
import { toast } from "../parts/toast.mjs";

export class RunningActions {
  constructor(store) {
    Object.assign(this, { store, lines: new Map(), isWide: false, person: null });
    this.root = byId("tray");
    this.button = make("button", { type: "button", class: "tray-button", "aria-expanded": "false", "aria-controls": "tray-list", onclick: () => this.toggle() });
    this.plans = make("ul", { class: "plans" });
    this.list = make("ul", { class: "acts" });
    this.panel = make("div", { id: "tray-list", class: "tray-panel", tabindex: "0", role: "region", "aria-label": "Acts that run, and that wait", hidden: "" }, this.plans, this.list);
    this.root.append(this.panel, this.button);
    store.addEventListener("change", () => this.draw());
    store.addEventListener("plans", () => this.draw());
    document.addEventListener("keydown", (event) => this.onKey(event));
    me().then((person) => { this.person = person; this.draw(); }, () => {});
  }

  onKey(event) {
    if (event.key === "Escape" && this.isWide && document.querySelector("dialog[open]") === null) {
      event.stopImmediatePropagation();
      this.toggle();
      this.button.focus();
    }
    if (event.key === "a" && !isTyping(event.target) && !event.ctrlKey && !event.metaKey && !event.altKey && !this.root.hidden && document.querySelector("dialog[open]") === null) {
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
    const commands = this.store.shown();
    const { plans } = this.store;
    show(this.root, commands.length + plans.length > 0);
    if (commands.length + plans.length === 0 && this.isWide) this.toggle();
    const running = commands.filter(isOpen).length;
    const bad = commands.filter(({ state }) => ["not_effective", "unkillable", "unknown"].includes(state)).length;
    const words = [
      ...(running > 0 ? [`${running} running`] : []), ...(bad > 0 ? [`${bad} to look at`] : []),
      ...(plans.length > 0 ? [`${plural(plans.length, "plan")} to approve`] : []),
      ...(running + bad + plans.length === 0 ? [plural(commands.length, "act")] : []),
    ];
    say(this.button, `Acts: ${words.join(" · ")}`);
    this.root.dataset.tone = bad > 0 ? "bad" : plans.length > 0 ? "warn" : running > 0 ? "run" : "";
    this.drawLines(commands);
    this.drawPlans(plans);
  }

  drawLines(commands) {
    const ids = new Set(commands.map(({ id }) => id));
    for (const [id, line] of this.lines) if (!ids.has(id)) { line.root.remove(); this.lines.delete(id); }
    commands.forEach((command, at) => {
      if (!this.lines.has(command.id)) this.lines.set(command.id, new Progress(command, (one) => this.more(one)));
      const line = this.lines.get(command.id);
      line.draw(command);
      if (this.list.children[at] !== line.root) this.list.insertBefore(line.root, this.list.children[at] ?? null);
    });
  }

  more(command) {
    const more = undoOf(command).map(([action, word]) => [word, () => begin(action, [command.task_id])]);
    if (!isOpen(command)) more.push(["Put away", () => this.store.forget(command.id)]);
    return more;
  }

  drawPlans(plans) {
    const text = JSON.stringify([plans, this.person?.name]);
    if (text === this.drawnPlans) return;
    this.drawnPlans = text;
    this.plans.replaceChildren(...plans.map((plan) => this.planLine(plan)));
  }

  planLine(plan) {
    const by = plan.by?.name ?? plan.by;
    const isOwn = by === this.person?.name;
    const mayApprove = !isOwn && isAtLeast(this.person, "operator");
    return make("li", { class: "plan", "data-plan": plan.id },
      make("div", { class: "act-head" }, make("strong", {}, `${plan.action} ${plural(plan.items.length, "job")}`), make("span", { class: "pill stale" }, "waits")),
      make("p", { class: "act-target" }, `${isOwn ? "You ask" : `${by} asks`}, ends ${when(plan.ends_at)}: “${plan.reason}”`),
      make("div", { class: "act-more" },
        ...(mayApprove ? [make("button", { type: "button", class: "button small first", onclick: () => approveDialog(this.store, plan) }, "Look and approve")] : []),
        ...(isOwn || mayApprove ? [make("button", { type: "button", class: "button small", onclick: () => this.withdraw(plan) }, isOwn ? "Withdraw" : "Turn down")] : [])));
  }

  async withdraw(plan) {
    try {
      await send("DELETE", `plans/${encodeURIComponent(plan.id)}`);
      toast("The plan is withdrawn; nothing was done.");
    } catch (error) {
      toast(sentence(error.message));
    }
    this.store.lookAtPlans();
  }
}
