// One task at the side: what it is, what stands or falls with it, what was done to it, and its
// owner's word. Refreshed in place.

import { ApiError, look, lookAtTask, send } from "../parts/api.mjs";
import { isOpen, memory, stateWords, tone, verb } from "../actions/action_words.mjs";
import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { ask, sentence, textField } from "../parts/dialog.mjs";
import { byId, copyText, make, say, show } from "../parts/dom.mjs";
import { age, moment, plural, secondsSince, when } from "../parts/format.mjs";
import { holdLine } from "../actions/holds.mjs";
import { jobOf, launchOf } from "./tasks_model.mjs";
import { toast } from "../parts/toast.mjs";

const HISTORY = 20;
const MOST_MEMBERS = 50;

/** Events: closed, open (a task of the same job). */
export class TaskDetails extends EventTarget {
  constructor(store, holds) {
    super();
    Object.assign(this, { store, holds, id: null, task: null, person: null });
    this.root = byId("task-drawer");
    this.body = byId("task-body");
    byId("task-close").addEventListener("click", () => this.close());
    byId("task-copy").addEventListener("click", async () => toast((await copyText(location.href)) ? "Link copied" : "Copy the address of this page"));
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
    Object.assign(this, { id, task, drawnFacts: null, drawnMembers: null, drawnHistory: null, drawnQuotas: null, drawnActs: null, history: [] });
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
    this.body.replaceChildren(this.state, this.acts, this.command, this.keep, make("h3", {}, "Gpus"), this.gpus, this.quotas, this.members, make("h3", {}, "Facts"), this.facts, this.past, this.hold);
    this.draw();
  }

  close() {
    if (!this.isOpen) return;
    this.id = this.task = null;
    show(this.root, false);
    this.dispatchEvent(new CustomEvent("closed"));
  }

  async refresh() {
    const { id } = this;
    if (id === null) return;
    try {
      const task = await lookAtTask(id);
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
    say(this.state, task.state === null ? "State not known" : `${task.state.charAt(0).toUpperCase()}${task.state.slice(1)}, ${task.started_at === null ? "age not known" : `${age(secondsSince(task.started_at))} old`}`);
    this.state.className = `drawer-state ${task.state === "running" ? "ok" : "stale"}`;
    say(this.command, task.command ?? "command not known");
    this.command.title = task.command_is === "program" ? "Of others' tasks, you read the program's name alone." : "";
    this.drawActs();
    this.drawKeep();
    this.drawGpus();
    this.drawFacts();
    if (this.hold.childElementCount === 0) this.hold.append(make("h3", {}, "Its node"), holdLine(this.holds, task.node, task.host));
  }

  drawActs() {
    const { task } = this;
    const may = task !== null && !this.isGone && this.person !== null && mayAct(this.person, task);
    const fit = may ? fitting(task) : [];
    const text = `${task?.id} ${fit.map(({ id }) => id)}`;
    if (text === this.drawnActs) return;
    this.drawnActs = text;
    this.acts.replaceChildren(...fit.map(({ id: action, label: word, is_kill: isKill }) => {
      const button = make("button", { type: "button", class: `button ${isKill ? "danger" : ""}`, "data-act": action }, word);
      pressed(button, () => { const { id } = task; return (event) => begin(action, [id], { x: event.clientX, y: event.clientY }); });
      return button;
    }));
  }

  drawKeep() {
    const { task, person } = this;
    const mayKeep = person !== null && mayAct(person, task);
    const text = JSON.stringify([task.keep ?? null, mayKeep]);
    if (this.keep.dataset.drawn === text) return;
    this.keep.dataset.drawn = text;
    const words = task.keep ? [make("p", {}, make("strong", {}, `Keep until ${moment(task.keep.until)}`), task.keep.by ? ` (${task.keep.by})` : "", `: ${task.keep.because}`)] : [];
    const buttons = !mayKeep ? [] : [make("button", { type: "button", class: "button small", onclick: () => this.askKeep() }, task.keep ? "Change" : "Keep it until …"),
      ...(task.keep ? [make("button", { type: "button", class: "button small", onclick: () => this.unkeep() }, "No longer")] : [])];
    this.keep.replaceChildren(...words, ...buttons);
  }

  async askKeep() {
    const { id, task } = this;
    const until = textField("until", "Until", { type: "datetime-local", required: "", value: localTime(task.keep?.until ?? Date.now() / 1000 + 4 * 3600) });
    await ask({
      title: "Keep this task", verb: "Keep it", lead: "Rules leave it alone within what policy allows, and people read it before they end it.",
      fields: [until, textField("because", "Because", { required: "", maxlength: "300", value: task.keep?.because ?? "" })],
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
    const text = JSON.stringify(this.task.gpus);
    if (this.gpus.dataset.drawn === text) return;
    this.gpus.dataset.drawn = text;
    this.gpus.replaceChildren(...this.task.gpus.map(({ uuid, mem_used_bytes: bytes, sm_pct: sm }) => make("li", {},
      make("a", { href: `/?gpu=${encodeURIComponent(uuid)}` }, uuid), make("span", { class: "figures" }, `${memory(bytes)}  ·  ${sm === null ? "SM not known" : `SM ${Math.round(sm)} %`}`))));
  }

  drawFacts() {
    const { task } = this;
    const rows = [["Id", task.id], ["Pid", String(task.pid)], ["Started", task.started_at === null ? "not known" : moment(task.started_at)],
      ["Memory", memory(task.mem_used_bytes)], ["Manager", task.manager ?? "none"], ...ownerRows(task.owner ?? {}), ["Kind", task.kind?.replace("_", " ") ?? "not known"], ["Job", task.job_id ?? "not known"]];
    const text = JSON.stringify(rows);
    if (this.drawnFacts === text) return;
    this.drawnFacts = text;
    this.facts.replaceChildren(...rows.map(([label, words]) => make("div", {}, make("dt", {}, label), make("dd", {}, words))), ownerPast(task.user));
  }

  async lookAtJob(task) {
    if (!task.job_id) return;
    const query = new URLSearchParams({ group: "job", sort: "pid", limit: MOST_MEMBERS });
    for (const key of new Set([jobOf(task), launchOf(task)])) query.append("open", key);
    const { items } = await look(`tasks?${query}`);
    if (task.id !== this.id) return;
    const text = JSON.stringify(items.map(({ id, state }) => [id, state]));
    if (text === this.drawnMembers) return;
    this.drawnMembers = text;
    const others = items.filter(({ id }) => id !== task.id);
    const own = others.filter((other) => jobOf(other) === jobOf(task));
    const ranks = others.filter((other) => jobOf(other) !== jobOf(task));
    this.members.replaceChildren(
      ...this.memberList(`Stand or fall with it (${plural(own.length, "task")})`, own),
      ...this.memberList(`Other ranks of its launch (${plural(ranks.length, "task")}): no act on this one reaches them`, ranks, task));
  }

  memberList(head, others, task = null) {
    if (others.length === 0) return [];
    return [make("h3", {}, head), make("ul", { class: "member-list" }, ...others.map((other) => make("li", {},
      make("button", { type: "button", class: "as-link", onclick: () => this.dispatchEvent(new CustomEvent("open", { detail: other })) }, task === null || other.node === task.node ? `${other.pid}` : `${other.pid} on ${other.host}`), make("code", {}, other.command ?? "not known"))))];
  }

  /** Which quotas count for it; where there is none, nothing is said. */
  async drawQuotas() {
    const { id } = this;
    const answer = await look(`tasks/${encodeURIComponent(id)}/quotas`).catch(() => null);
    if (answer === null || id !== this.id) return;
    const text = JSON.stringify(answer.items);
    if (text === this.drawnQuotas) return;
    this.drawnQuotas = text;
    this.quotas.replaceChildren(...(answer.items.length === 0 ? [] : [make("h3", {}, "Quotas"), make("ul", { class: "task-quota-list" },
      ...answer.items.map((one) => make("li", { title: one.why }, make("a", { href: `/quotas#${encodeURIComponent(one.quota)}` }, one.quota), one.is_over ? make("span", { class: "pill lost" }, one.goes ? (one.mode === "act" ? "over: this one goes" : "over: this one would go") : "over") : null,
        make("p", {}, `${one.sentence ?? one.meaning}.`, /more specific/.test(one.why) ? make("small", {}, one.why) : null))))]));
  }

  async drawHistory() {
    const { id } = this;
    const answer = await look(`commands?state=all&limit=${HISTORY}&task=${encodeURIComponent(id)}`).catch(() => null);
    if (answer === null || id !== this.id) return;
    const text = JSON.stringify(answer.items);
    if (text === this.drawnHistory) return;
    this.drawnHistory = text;
    this.past.replaceChildren(...(answer.items.length === 0 ? [] : [make("h3", {}, "What was done to it"),
      make("ul", { class: "past" }, ...answer.items.map((one) => pastLine(one)))]));
  }
}

function ownerRows(owner) {
  const named = (name, id) => (name && id ? `${name} (${id.slice(0, 12)})` : name ?? id?.slice(0, 12));
  const rows = [["Notebook", owner.notebook], ["Slurm job", owner.slurm_job], ["Pod", owner.namespace && owner.pod ? `${owner.namespace}/${owner.pod}` : owner.pod],
    ["Container", named(owner.container_name, owner.container)], ["Unit", owner.unit], ["Launch", owner.launch], ["Rank", owner.rank?.toString()]];
  return rows.filter(([, words]) => words !== undefined && words !== null);
}

function ownerPast(user) {
  if (user === null || user === undefined) return make("div", {});
  return make("div", {}, make("dt", {}, "Owner"), make("dd", {}, make("a", { href: `/history?${new URLSearchParams({ owner: `user:${user}`, last: "24h" })}`, title: "What they held over time" }, `${user}: past`)));
}

function pastLine(one) {
  return make("li", { "data-command": one.id },
    make("div", { class: "act-head" }, make("strong", {}, verb(one.action)), make("span", { class: `pill ${tone(one.state)}` }, stateWords(one.state))),
    make("p", {}, one.sentence || one.step || ""),
    make("small", { title: moment(one.requested_at) }, `${one.by?.name ?? "somebody"}, ${isOpen(one) ? "now" : when(one.requested_at)}${one.reason ? `: “${one.reason}”` : ""}`));
}

function localTime(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
