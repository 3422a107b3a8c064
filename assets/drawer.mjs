// The Gpu drawer: everything known of one Gpu now. Refreshed in place, never rebuilt under a reader.

import { me } from "./account.mjs";
import { begin, fitting, mayAct, pressed } from "./acts.mjs";
import { ApiError, getEvents, getGpu, getNode, getTask } from "./api.mjs";
import { byId, copyText, make, say, show } from "./dom.mjs";
import { Facts, boardFacts, nodeFacts, peerFacts } from "./drawer_facts.mjs";
import { Metrics } from "./drawer_metrics.mjs";
import { EventList } from "./event_lines.mjs";
import { age, gibibytes, secondsSince } from "./format.mjs";
import { holdLine } from "./holds.mjs";
import { stateWords } from "./gpu_words.mjs";
import { managerWords } from "./tasks_model.mjs";

const MOST_TASKS = 50;
const MOST_EVENTS = 10;
// Of the node and of what happened: once in a while is enough.
const SELDOM_MS = 5_000;

export class Drawer extends EventTarget {
  constructor(picture, book, holds) {
    super();
    Object.assign(this, { picture, book, holds, person: null, uuid: null, tasks: new Map() });
    this.root = byId("drawer");
    this.body = byId("drawer-body");
    byId("drawer-close").addEventListener("click", () => this.close());
    byId("drawer-copy").addEventListener("click", () => this.copyLink());
    me().then((person) => { this.person = person; }, () => {});
  }

  get isOpen() {
    return this.uuid !== null;
  }

  open(uuid, { isFocused }) {
    if (uuid !== this.uuid) this.start(uuid);
    show(this.root, true);
    if (isFocused) this.root.focus({ preventScroll: true });
    this.refresh();
  }

  start(uuid) {
    Object.assign(this, { uuid, isBuilt: false, seldomAt: -Infinity });
    this.tasks.clear();
    say(byId("drawer-title"), "…");
    say(byId("drawer-subtitle"), uuid);
    this.body.replaceChildren(make("p", { class: "drawer-state", role: "status" }, "Loading …"));
  }

  /** All at once and only when everything is there: what came before does not jump for what comes. */
  build(gpu) {
    this.isBuilt = true;
    this.taskList = make("ul", { class: "tasks" });
    this.taskTitle = make("h3", {}, "Tasks");
    this.metrics = new Metrics(this.book);
    [this.peers, this.board, this.node] = [new Facts(), new Facts(), new Facts()];
    this.metrics.append("links", this.peers.root);
    this.events = new EventList("Nothing has happened to it lately.");
    this.body.append(this.taskTitle, this.taskList, ...this.metrics.elements, make("h3", {}, "Events"), this.events.root,
      make("h3", {}, "Board"), this.board.root, make("h3", {}, "Its node"), holdLine(this.holds, gpu.node, gpu.host), this.node.root);
  }

  close() {
    if (!this.isOpen) return;
    this.uuid = null;
    show(this.root, false);
    this.dispatchEvent(new CustomEvent("closed"));
  }

  async copyLink() {
    const isCopied = await copyText(location.href);
    this.dispatchEvent(new CustomEvent("said", { detail: isCopied ? "Link copied" : "Copy the address of this page" }));
  }

  async refresh() {
    const { uuid } = this;
    if (uuid === null) return;
    try {
      const gpu = await getGpu(uuid);
      const [tasks, seldom] = await Promise.all([tasksOf(gpu), this.seldom(gpu)]);
      // The second of two at once comes without what is due seldom, and must not build without it.
      if (uuid === this.uuid && (this.isBuilt || seldom !== null)) this.draw(gpu, tasks, seldom);
    } catch (error) {
      if (uuid === this.uuid) this.fail(error);
    }
  }

  /** {node, events}, each null where it did not come; null: not due. */
  async seldom({ uuid, node }) {
    if (performance.now() - this.seldomAt < SELDOM_MS) return null;
    this.seldomAt = performance.now();
    const answers = await Promise.all([getNode(node).catch(() => null), getEvents({ gpu: uuid, node, limit: MOST_EVENTS }).catch(() => null)]);
    return { node: answers[0], events: answers[1]?.items ?? null };
  }

  fail(error) {
    const isGone = error instanceof ApiError && error.status === 404;
    const words = isGone ? "No node reports this Gpu." : "The hub does not answer; these numbers are no longer live.";
    this.setState(words, isGone ? "lost" : "stale");
    if (isGone) say(byId("drawer-title"), "Unknown Gpu");
  }

  draw(gpu, tasks, seldom) {
    if (!this.isBuilt) this.build(gpu);
    say(byId("drawer-title"), `${gpu.host} · GPU ${gpu.place}`);
    say(byId("drawer-subtitle"), gpu.name);
    const state = this.stateOf(gpu);
    this.setState(stateLine(gpu, state, this.book.absence), state);
    this.metrics.draw(gpu);
    this.board.draw(boardFacts(gpu));
    this.drawTasks(gpu.uuid, gpu.tasks ?? [], tasks);
    if (seldom?.events) this.events.draw(seldom.events);
    if (seldom?.node) this.drawNode(gpu, seldom.node);
  }

  drawNode(gpu, node) {
    const { picture } = this;
    const nameOf = (uuid) => (picture.slotOf.has(uuid) ? `To GPU ${picture.placeName(picture.slotOf.get(uuid))}` : `To ${uuid}`);
    this.peers.draw(peerFacts(gpu.uuid, node.links, nameOf));
    this.node.draw(nodeFacts(node));
  }

  // That its node is silent the API says of the node; the picture says it of the Gpu.
  stateOf(gpu) {
    const slot = this.picture.slotOf.get(gpu.uuid);
    return slot !== undefined && this.picture.state(slot) === "offline" ? "offline" : gpu.state;
  }

  setState(words, state) {
    const line = this.body.querySelector(".drawer-state");
    say(line, words);
    line.className = `drawer-state ${state}`;
  }

  drawTasks(uuid, ids, tasks) {
    const shown = ids.slice(0, MOST_TASKS);
    const more = ids.length > MOST_TASKS ? `, ${MOST_TASKS} shown` : "";
    const parts = this.picture.partsOf(this.picture.slotOf.get(uuid)).length;
    const none = parts > 0 ? `Split by MIG: tasks run on its ${parts} instances` : "No task";
    say(this.taskTitle, ids.length === 0 ? none : `Tasks (${ids.length}${more})`);
    for (const [id, item] of this.tasks) if (!shown.includes(id)) { item.root.remove(); this.tasks.delete(id); }
    for (const task of tasks) this.drawTask(task, uuid);
  }

  drawTask(task, uuid) {
    if (!this.tasks.has(task.id)) {
      const item = taskItem();
      this.tasks.set(task.id, item);
      this.taskList.append(item.root);
    }
    const item = this.tasks.get(task.id);
    const { owner, command, figures, manager } = item;
    say(owner, task.user ?? "owner unknown");
    this.drawActs(item, task);
    say(command, task.command ?? "command not known");
    command.title = task.command ?? "";
    say(figures, taskFigures(task, task.gpus?.find((use) => use.uuid === uuid) ?? {}));
    say(manager, managerWords(task) ?? "");
  }

  // An item is one task's for as long as it is there, and so are its buttons.
  drawActs(item, task) {
    const fit = this.person !== null && mayAct(this.person, task) ? fitting(task) : [];
    const text = fit.map(([action]) => action).join();
    if (item.drawnActs === text) return;
    item.drawnActs = text;
    const { id, pid } = task;
    item.acts.replaceChildren(...fit.map(([action, word]) => {
      const button = make("button", { type: "button", class: `row-act ${action}`, "data-act": action, "aria-label": `${word} task ${pid}` }, word);
      pressed(button, () => (event) => begin(action, [id], { x: event.clientX, y: event.clientY }));
      return button;
    }), make("a", { class: "row-act", href: `/tasks?task=${encodeURIComponent(id)}` }, "Details"));
  }
}

async function tasksOf({ tasks }) {
  const found = await Promise.all((tasks ?? []).slice(0, MOST_TASKS).map((id) => getTask(id).catch(() => null)));
  return found.filter((task) => task !== null);
}

function taskItem() {
  const item = { owner: make("strong", {}), acts: make("div", { class: "task-acts" }), drawnActs: null, command: make("code", { tabindex: "0" }), figures: make("span", { class: "figures" }), manager: make("span", { class: "manager" }) };
  item.root = make("li", {}, make("div", { class: "task-head" }, item.owner, item.manager), item.command, item.figures, item.acts);
  return item;
}

function taskFigures(task, use) {
  const { text, unit } = use.mem_used_bytes === null || use.mem_used_bytes === undefined
    ? { text: "memory", unit: "not known" } : gibibytes(use.mem_used_bytes);
  const sm = use.sm_pct === null || use.sm_pct === undefined ? "SM not known" : `SM ${Math.round(use.sm_pct)} %`;
  const old = task.started_at === null ? "age not known" : age(secondsSince(task.started_at));
  const state = task.state === null || task.state === "running" ? [] : [task.state];
  return [`${text} ${unit}`, sm, `pid ${task.pid}`, old, ...state].join("  ·  ");
}

function stateLine(gpu, state, absence) {
  const old = `read ${age(gpu.age_s ?? secondsSince(gpu.sampled_at))} ago`;
  if (state === "ok") return `Live, ${old}`;
  const last = gpu.sampled_at === null ? "never read" : `last ${old}`;
  return `${capital(stateWords(state))}: ${absence[state] ?? "its node is silent"}; ${last}`;
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
