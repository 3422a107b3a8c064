// The Gpu drawer: everything known of one Gpu now. Refreshed in place, never rebuilt under a reader.

import { me } from "./account.mjs";
import { begin, fitting, mayAct, pressed } from "./acts.mjs";
import { ApiError, getGpu, getTask } from "./api.mjs";
import { byId, copyText, make, say, show } from "./dom.mjs";
import { age, gibibytes, secondsSince, valueOf } from "./format.mjs";
import { holdLine } from "./holds.mjs";
import { shareOf, stateWords, valueWords } from "./gpu_words.mjs";
import { managerWords } from "./tasks_model.mjs";

const MOST_TASKS = 50;

const FACTS = [
  ["uuid", "UUID", (value) => value],
  ["pci_bus_id", "PCI bus", (value) => value],
  ["parent_uuid", "MIG instance of", (value) => value],
  ["mem_total_bytes", "Memory", joined(gibibytes)],
  ["power_limit_w", "Power limit", (value) => `${Math.round(value)} W`],
  ["sm_clock_max_mhz", "Highest SM clock", (value) => `${Math.round(value)} MHz`],
  ["mem_clock_max_mhz", "Highest memory clock", (value) => `${Math.round(value)} MHz`],
  ["temp_slowdown_c", "Slows down at", (value) => `${Math.round(value)} °C`],
  ["temp_shutdown_c", "Shuts down at", (value) => `${Math.round(value)} °C`],
];

function joined(words) {
  return (value) => { const { text, unit } = words(value); return `${text} ${unit}`; };
}

export class Drawer extends EventTarget {
  constructor(picture, book, holds) {
    super();
    Object.assign(this, { picture, book, holds, person: null, uuid: null, rows: new Map(), tasks: new Map() });
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
    this.uuid = uuid;
    this.rows.clear();
    this.tasks.clear();
    say(byId("drawer-title"), "…");
    say(byId("drawer-subtitle"), uuid);
    this.body.replaceChildren(make("p", { class: "drawer-state", role: "status" }), ...this.sections());
  }

  sections() {
    this.state = null;
    this.metrics = make("dl", { class: "metrics" }, ...[...this.book.metrics.values()].map((metric) => this.metricRow(metric)));
    this.taskList = make("ul", { class: "tasks" });
    this.taskTitle = make("h3", {}, "Tasks");
    this.facts = make("dl", { class: "facts" });
    this.hold = make("div", {});
    return [this.taskTitle, this.taskList, make("h3", {}, "Now"), this.metrics, make("h3", {}, "Facts"), this.facts, this.hold];
  }

  metricRow(metric) {
    const value = make("span", { class: "value" }, "…");
    const bar = make("span", { class: "bar-full" });
    const row = make("div", { title: metric.meaning },
      make("dt", {}, metric.label), make("dd", {}, value, make("span", { class: "bar-place" }, bar)));
    this.rows.set(metric.key, { row, value, bar });
    return row;
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
      if (uuid !== this.uuid) return;
      this.draw(gpu);
      await this.drawTasks(uuid, gpu.tasks ?? []);
    } catch (error) {
      if (uuid === this.uuid) this.fail(error);
    }
  }

  fail(error) {
    const isGone = error instanceof ApiError && error.status === 404;
    const words = isGone ? "No node reports this Gpu." : "The hub does not answer; these numbers are no longer live.";
    this.setState(words, isGone ? "lost" : "stale");
    if (isGone) say(byId("drawer-title"), "Unknown Gpu");
  }

  draw(gpu) {
    say(byId("drawer-title"), `${gpu.host} · GPU ${gpu.index}`);
    say(byId("drawer-subtitle"), gpu.name);
    const state = this.stateOf(gpu);
    this.setState(stateLine(gpu, state, this.book.absence), state);
    for (const [key, cells] of this.rows) this.drawMetric(gpu, this.book.metrics.get(key), cells);
    this.drawFacts(gpu);
    if (this.hold.childElementCount === 0) this.hold.append(make("h3", {}, "Its node"), holdLine(this.holds, gpu.node, gpu.host));
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

  drawMetric(gpu, metric, { value, bar, row }) {
    const words = valueWords(gpu, metric, this.book);
    say(value, `${words.text} ${words.unit}`.trim());
    value.classList.toggle("missing", words.isMissing);
    row.title = words.isMissing && words.meaning ? `${metric.meaning} ${capital(words.meaning)}.` : metric.meaning;
    const last = gpu.last_values?.[metric.key];
    if (words.isMissing && last !== undefined && last !== null) {
      const { text, unit } = valueOf(metric, last, this.book.reasons);
      say(value, `was ${text} ${unit}`);
    }
    const share = shareOf(gpu, metric);
    show(bar, share !== null);
    if (share !== null) bar.style.transform = `scaleX(${share})`;
  }

  drawFacts(gpu) {
    const facts = { uuid: gpu.uuid, ...gpu.facts };
    const known = FACTS.filter(([key]) => facts[key] !== null && facts[key] !== undefined);
    const text = JSON.stringify(known.map(([key]) => facts[key]));
    if (this.facts.dataset.drawn === text) return;
    this.facts.dataset.drawn = text;
    this.facts.replaceChildren(...known.map(([key, label, words]) =>
      make("div", {}, make("dt", {}, label), make("dd", {}, words(facts[key])))));
  }

  async drawTasks(uuid, ids) {
    const shown = ids.slice(0, MOST_TASKS);
    const tasks = (await Promise.all(shown.map((id) => getTask(id).catch(() => null)))).filter((task) => task !== null);
    if (uuid !== this.uuid) return;
    const more = ids.length > MOST_TASKS ? `, ${MOST_TASKS} shown` : "";
    say(this.taskTitle, ids.length === 0 ? "No task" : `Tasks (${ids.length}${more})`);
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
