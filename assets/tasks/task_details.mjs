// One task at the side: what it is, what stands or falls with it, what was done to it, and its
// owner's word. Refreshed in place.

import { ApiError, itemsOf, look, send, single } from "../parts/api.mjs";
import { isOpen, memory, stateWords, tone, verb } from "../actions/action_words.mjs";
import { isMadeUp, mayAct } from "../actions/actions.mjs";
import { drawActs } from "./act_buttons.mjs";
import { ask, sentence, textField } from "../parts/dialog.mjs";
import { Teller, button, byId, copyText, factLines, make, redraw, say, show } from "../parts/dom.mjs";
import { age, capital, moment, plural, secondsSince, when } from "../parts/format.mjs";
import { holdLine } from "../actions/holds.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { jobOf, launchOf } from "./tasks_model.mjs";
import { localText } from "../parts/time_ranges.mjs";
import { toast } from "../parts/toast.mjs";

const HISTORY = 20;
const MOST_MEMBERS = 50;

/** Events: closed, open (a task of the same job). */
export class TaskDetails extends Teller {
  constructor(store, holds) {
    super();
    Object.assign(this, { store, holds, id: null, task: null, person: null });
    this.root = byId("task-drawer");
    this.body = byId("task-body");
    byId("task-close").addEventListener("click", () => this.close());
    byId("task-copy").addEventListener("click", async () => toast((await copyText(location.href)) ? "Link copied" : "Copy link to this page"));
    store.addEventListener("change", ({ detail }) => { if (this.id !== null && detail?.task_id === this.id) this.drawHistory(); });
  }

  get isOpen() {
    return this.id !== null;
  }

  open(id, task, isFocused = false) {
    if (id !== this.id) this.start(id, task);
    show(this.root, true);
    if (isFocused) this.root.focus({ preventScroll: true });
    this.refresh();
  }

  start(id, task) {
    Object.assign(this, { id, task });
    say(byId("task-title"), task === null ? "…" : `Task ${task.pid}`);
    say(byId("task-subtitle"), task === null ? id : task.host);
    this.state = make("p", { class: "drawer-state", role: "status" });
    this.acts = make("div", { class: "task-acts" });
    this.command = make("code", { class: "task-command", tabindex: "0" });
    this.keep = make("div", { class: "task-keep" });
    this.facts = make("dl", { class: "facts" });
    this.gpus = make("ul", { class: "tasks task-gpus" });
    this.members = make("div", { class: "task-members" });
    this.past = make("div", { class: "task-past" });
    this.quotas = make("div", { class: "task-quotas" });
    this.hold = make("div", {});
    this.body.replaceChildren(this.state, this.acts, this.command, this.keep, make("h3", {}, "GPUs"), this.gpus, this.quotas, this.members, make("h3", {}, "Facts"), this.facts, this.past, this.hold);
    this.draw();
  }

  close() {
    if (!this.isOpen) return;
    this.id = this.task = null;
    show(this.root, false);
    this.tell("closed");
  }

  async refresh() {
    const { id } = this;
    if (id === null) return;
    try {
      const task = await single("tasks", id);
      if (id !== this.id) return;
      this.task = task;
      this.isGone = false;
      this.draw();
      await Promise.all([this.lookAtJob(task), this.drawHistory(), this.drawQuotas()]);
    } catch (error) {
      if (id === this.id) this.fail(error);
    }
  }

  fail(error) {
    this.isGone = error instanceof ApiError && error.status === 404;
    say(this.state, this.isGone ? "No node reports this task any more." : `Not up to date: ${sentence(error.message)}`);
    this.state.className = `drawer-state ${this.isGone ? "lost" : "stale"}`;
    if (this.isGone) { this.drawActs(); this.drawHistory(); }
    if (this.isGone && this.task === null) say(byId("task-title"), "Unknown task");
  }

  draw() {
    const { task } = this;
    if (task === null) return;
    say(byId("task-title"), `Task ${task.pid} · ${task.user ?? "owner unknown"}`);
    say(byId("task-subtitle"), task.host);
    say(this.state, task.state === null ? "State unknown" : `${capital(task.state)}, ${task.started_at === null ? "age unknown" : `${age(secondsSince(task.started_at))} old`}`);
    this.state.className = `drawer-state ${task.state === "running" ? "ok" : "stale"}`;
    say(this.command, task.command ?? "command unknown");
    this.command.title = task.command_is === "program" ? "For other users' tasks only the program name is shown." : "";
    this.drawActs();
    this.drawKeep();
    this.drawGpus();
    this.drawFacts();
    if (this.hold.childElementCount === 0) this.hold.append(make("h3", {}, "Node"), holdLine(this.holds, task.node, task.host));
  }

  drawActs() {
    if (this.task !== null && isMadeUp(this.task)) { redraw(this.acts, ["made up"], () => ["Simulated: it has no process, so it cannot be paused or ended."]); return; }
    const traits = ({ is_kill: isKill }) => ({ class: `button ${isKill ? "danger" : ""}` });
    drawActs(this.acts, this.isGone ? null : this.task, this.person, traits);
  }

  drawKeep() {
    const { task: { keep }, person } = this;
    const mayKeep = mayAct(person, this.task);
    redraw(this.keep, [keep ?? null, mayKeep], () => [
      ...(keep ? [make("p", {}, make("strong", {}, `Keep until ${moment(keep.until)}`), keep.by ? ` (${keep.by})` : "", `: ${keep.because}`)] : []),
      ...(mayKeep ? [button(keep ? "Change" : "Keep until …", () => this.askKeep())] : []),
      ...(mayKeep && keep ? [button("Stop keeping", () => this.unkeep())] : [])]);
  }

  async askKeep() {
    const { id, task } = this;
    const until = textField("until", "Until", { type: "datetime-local", required: "", value: localText(task.keep?.until ?? Date.now() / 1000 + 4 * 3600).slice(0, 16) });
    await ask({
      title: "Keep this task", verb: "Keep", lead: "Rules leave the task alone as far as policy allows, and people see the reason before they end it.",
      fields: [until, textField("because", "Reason", { required: "", maxlength: "300", value: task.keep?.because ?? "" })],
      submit: (given) => send("PUT", `tasks/${encodeURIComponent(id)}/keep`, { until: Date.parse(given.get("until")) / 1000, because: given.get("because").trim() }),
    });
    this.refresh();
  }

  async unkeep() {
    try {
      await send("DELETE", `tasks/${encodeURIComponent(this.id)}/keep`);
    } catch (error) {
      toast(sentence(error.message));
    }
    this.refresh();
  }

  drawGpus() {
    redraw(this.gpus, this.task.gpus, () => this.task.gpus.map(({ uuid, mem_used_bytes: bytes, sm_pct: sm }) => make("li", {},
      make("a", { href: `/?gpu=${encodeURIComponent(uuid)}` }, uuid), make("span", { class: "figures" }, `${memory(bytes)}  ·  ${sm === null ? "SM unknown" : `SM ${Math.round(sm)} %`}`))));
  }

  drawFacts() {
    const { task } = this;
    const rows = [["Id", task.id], ["Pid", String(task.pid)], ["Started", task.started_at === null ? "not known" : moment(task.started_at)],
      ["Memory", memory(task.mem_used_bytes)], ["Manager", task.manager ?? "none"], ...ownerRows(task.owner ?? {}), ["Kind", task.kind?.replace("_", " ") ?? "not known"], ["Job", task.job_id ?? "not known"]];
    redraw(this.facts, rows, () => [...factLines(rows), ownerPast(task.user)]);
  }

  async lookAtJob(task) {
    if (!task.job_id) return;
    const query = new URLSearchParams({ group: "job", sort: "pid", limit: MOST_MEMBERS });
    for (const key of new Set([jobOf(task), launchOf(task)])) query.append("open", key);
    const { items } = await look(`tasks?${query}`);
    if (task.id !== this.id) return;
    const others = items.filter(({ id }) => id !== task.id);
    const own = others.filter((other) => jobOf(other) === jobOf(task));
    const ranks = others.filter((other) => jobOf(other) !== jobOf(task));
    redraw(this.members, items.map(({ id, state }) => [id, state]), () => [
      ...this.memberList(`Processes of the same job (${plural(own.length, "task")})`, own),
      ...this.memberList(`Other ranks of its launch (${plural(ranks.length, "task")}): actions on this task do not affect them`, ranks, task)]);
  }

  memberList(head, others, task = null) {
    return headed(head, "member-list", others.map((other) => make("li", {},
      make("button", { type: "button", class: "as-link", onclick: () => this.tell("open", other) }, task === null || other.node === task.node ? `${other.pid}` : `${other.pid} on ${other.host}`), make("code", { title: wholeCommand(other.command) }, shortCommand(other.command)))));
  }

  /** Which quotas count for it; where there is none, nothing is said. */
  async drawQuotas() {
    const items = await this.itemsOf(`tasks/${encodeURIComponent(this.id)}/quotas`);
    if (items !== null) redraw(this.quotas, items, () => headed("Quotas", "task-quota-list", items.map(quotaLine)));
  }

  async drawHistory() {
    const items = await this.itemsOf(`commands?state=all&limit=${HISTORY}&task=${encodeURIComponent(this.id)}`);
    if (items !== null) redraw(this.past, items, () => headed("Actions on this task", "past", items.map(pastLine)));
  }

  /** Null: the hub does not answer, or another task is open by now. */
  async itemsOf(path) {
    const { id } = this;
    const items = await itemsOf(path);
    return id === this.id ? items : null;
  }
}

const headed = (head, list, lines) => (lines.length === 0 ? [] : [make("h3", {}, head), make("ul", { class: list }, lines)]);

function quotaLine({ quota, why, mode, goes, is_over: isOver, sentence: words, meaning }) {
  const going = mode === "act" ? "over: this task will be ended" : "over: this task would be ended";
  return make("li", { title: why }, make("a", { href: `/quotas#${encodeURIComponent(quota)}` }, quota),
    isOver ? make("span", { class: "pill lost" }, goes ? going : "over") : null,
    make("p", {}, `${words ?? meaning}.`, /more specific/.test(why) ? make("small", {}, why) : null));
}

function ownerRows(owner) {
  const named = (name, id) => (name && id ? `${name} (${id.slice(0, 12)})` : name ?? id?.slice(0, 12));
  const rows = [["Notebook", owner.notebook], ["Slurm job", owner.slurm_job], ["Pod", owner.namespace && owner.pod ? `${owner.namespace}/${owner.pod}` : owner.pod],
    ["Container", named(owner.container_name, owner.container)], ["Unit", owner.unit], ["Launch", owner.launch], ["Rank", owner.rank?.toString()]];
  return rows.filter(([, words]) => words !== undefined && words !== null);
}

function ownerPast(user) {
  if (user === null || user === undefined) return make("div", {});
  return make("div", {}, make("dt", {}, "Owner"), make("dd", {}, make("a", { href: `/history?${new URLSearchParams({ owner: `user:${user}`, last: "24h" })}`, title: "Usage over time" }, `${user}: history`)));
}

function pastLine(one) {
  return make("li", { "data-command": one.id },
    make("div", { class: "act-head" }, make("strong", {}, verb(one.action)), make("span", { class: `pill ${tone(one.state)}` }, stateWords(one.state))),
    make("p", {}, one.sentence || one.step || ""),
    make("small", { title: moment(one.requested_at) }, `${one.by?.name ?? "somebody"}, ${isOpen(one) ? "now" : when(one.requested_at)}${one.reason ? `: “${one.reason}”` : ""}`));
}
