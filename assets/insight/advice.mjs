// The Advice page: what would free GPU-hours, the most first.

import { look, lookAtAll, send } from "../parts/api.mjs";
import { ask, copyable, sentence, textField } from "../parts/dialog.mjs";
import { button, byId, keepFocus, make, redraw, say, sayOrHide, settle, show } from "../parts/dom.mjs";
import { age, amount, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";

const EVERY_MS = 60_000;
const WEEK_H = 168;
const MOST_IDLE = 5;
const lastHours = (hours) => `the last ${hours === 1 ? "hour" : plural(hours, "hour")}`;

/** Of the time that was read, and of no other: a GPU may be idle for longer than advice looks back. */
export const nothingWords = (hours) => `No advice would free 4 GPU-hours a week or more. In ${lastHours(hours)}, as far as measured, no owner left a fifth of their GPU-hours idle, no two GPUs of one owner fit on one, no board was far too large for its task, no lease was unused for two hours, and no node was full while another one was half empty.`;

export default class AdvicePage extends Looker {
  constructor(root, live) {
    super(live, EVERY_MS, { problem: byId("advice-problem"), what: "advice" });
    this.root = root;
    this.begin();
  }

  async begin() {
    await this.meet();
    if (this.may("operator")) return void this.look();
    sayOrHide(byId("advice-none"), "Advice names owners and what they hold, so it is visible to operators only.");
    settle(this.root);
  }

  async ask() {
    const wasted = `&filter=${encodeURIComponent("state:wasted")}`;
    const [found, tasks, gpus] = await Promise.all([look("advice"), lookAtAll("tasks", `${wasted}&sort=idle_s&order=desc`), lookAtAll("gpus", wasted)]);
    const indices = new Map(gpus.map(({ uuid, index }) => [uuid, index]));
    return { ...found, idle: tasks.map((task) => ({ ...task, indices: task.gpus.filter(({ uuid }) => indices.has(uuid)).map(({ uuid }) => indices.get(uuid)) })) };
  }

  fail(error) {
    super.fail(error);
    settle(this.root);
  }

  take(found) {
    const { hours, least_hours: least, items } = found;
    const standing = items.filter(({ dismissed }) => dismissed === null);
    const dismissed = items.filter((one) => one.dismissed !== null);
    say(byId("advice-words"), hours < least ? "" : `Based on ${lastHours(hours)}. GPU-hours are per week${hours < WEEK_H ? ", extrapolated" : ""}.`);
    sayOrHide(byId("advice-none"), hours < least
      ? `No advice yet: ${amount(hours)} of ${plural(least, "hour")} ${least === 1 ? "is" : "are"} measured.${least < WEEK_H ? "" : " A working week must be among them."}`
      : standing.length === 0 ? nothingWords(hours) : "");
    this.drawIdle(found.idle);
    const [place, aside] = [byId("advice-place"), byId("advice-dismissed")];
    keepFocus(place, () => redraw(place, standing, () => standing.map((one) => this.line(one))));
    show(aside, dismissed.length > 0);
    redraw(aside.querySelector("ul"), dismissed, () => dismissed.map((one) => this.line(one)));
    settle(this.root);
  }

  /** What is idle at this moment is no advice yet, and nobody should think that it was not seen. */
  drawIdle(idle) {
    const place = byId("advice-now");
    show(place, idle.length > 0);
    if (idle.length === 0) return;
    const words = idle.slice(0, MOST_IDLE).map(({ host, indices, user, idle_s: seconds }) => `${host} GPU ${indices.join(", ")} (${user ?? "owner unknown"}${seconds === null ? "" : `, for ${age(seconds)}`})`);
    if (idle.length > MOST_IDLE) words.push(`${amount(idle.length - MOST_IDLE)} more`);
    redraw(place, words, () => ["Idle right now, with memory held: ", words.join("; "), ". ", make("a", { href: `/?filter=${encodeURIComponent("state:wasted")}` }, "Show on the map")]);
  }

  line(one) {
    const owner = one.owner === null ? null : make("a", { href: `/tasks?filter=${encodeURIComponent(`user:${one.owner}`)}` }, `Tasks of ${one.owner}`);
    return make("li", { class: "advice-one" },
      make("div", { class: "advice-hours" }, make("strong", {}, amount(one.gpu_hours)), make("span", {}, "GPU-hours a week")),
      make("div", {},
        make("h2", {}, one.title, " ", make("span", { class: "pill" }, one.label)),
        make("dl", {}, ...[["Why", one.reason], ["On recorded data", one.past], ["Risk", one.risk]].map(([name, words]) => make("div", {}, make("dt", {}, name), make("dd", {}, sentence(words))))),
        copyable(one.command, "the command"),
        make("p", { class: "advice-undo" }, "Undo: ", make("code", {}, one.undo)),
        one.dismissed === null ? null : make("p", { class: "advice-why" }, `Dismissed by ${one.dismissed.by}: ${one.dismissed.reason}`),
        make("p", { class: "advice-acts" }, owner, one.dismissed === null ? button("Dismiss …", () => this.dismiss(one)) : button("Recall", () => this.recall(one)))));
  }

  async dismiss(one) {
    await ask({ title: "Dismiss this advice", lead: [one.title], verb: "Dismiss", fields: [textField("reason", "Why", { required: "", minlength: "3", maxlength: "200" })],
      submit: (given) => send("POST", `advice/${one.id}/dismiss`, { reason: given.get("reason") }) });
    this.look();
  }

  async recall(one) {
    await send("POST", `advice/${one.id}/recall`).catch((error) => this.complain(sentence(error.message)));
    this.look();
  }
}
