// The Tasks page: what is asked of the hub, what holds the order still, and what may be done.

import { readView, writeView } from "../parts/address.mjs";
import { look } from "../parts/api.mjs";
import { ACTS } from "../actions/action_words.mjs";
import { begin, pressed } from "../actions/actions.mjs";
import { byId, isTyping, make, say, show } from "../parts/dom.mjs";
import { FilterBox } from "../parts/filter_box.mjs";
import { amount, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { TaskDetails } from "./task_details.mjs";
import { TasksTable } from "./tasks_table.mjs";
import { ALLOWED, USUAL, heldWords, jobOf, linesOf, merged, queryOf } from "./tasks_model.mjs";

const EVERY_MS = 2_000;
const FILTER_WAIT_MS = 250;
const MOST_TASKS = 1_000;

export default class Tasks extends Looker {
  constructor(root, live, holds, store) {
    super(live, EVERY_MS, { problem: byId("tasks-problem"), what: "list" });
    this.usual = { ...USUAL, group: byId("tasks-place").dataset.group };
    Object.assign(this, { root, store, view: { ...readView(this.usual, ALLOWED), open: new URLSearchParams(location.search).getAll("open") }, lines: [], selected: new Map(), isPointerIn: false, answer: null, anchor: null });
    this.table = new TasksTable(byId("tasks-place"));
    this.details = new TaskDetails(store, holds);
    this.filter = new FilterBox(root, "tasks-filter", { popover: "tasks-popover", words: "tasks-words", placeholder: "user:alice & mem>50%", waitMs: FILTER_WAIT_MS }, (filter) => this.choose({ filter }));
    this.filter.field.value = this.view.filter;
    this.putBulk();
    this.hint = byId("tasks-hint");
    this.hintWords = make("span", {});
    this.hint.append(this.hintWords, make("button", { type: "button", class: "as-link", onclick: () => this.apply() }, "Apply"));
    this.listen();
    byId("tasks-group").value = this.view.group;
    this.table.drawHead(this.view);
    if (this.view.task !== "") this.details.open(this.view.task, null);
    this.meet();
    for (const name of ["slurm", "kubernetes"]) look(name).then(({ items, ignored }) => show(byId(`tasks-${name}`), items.length + ignored.length > 0), () => {});
    this.look(true);
  }

  async meet() {
    await super.meet();
    this.table.person = this.details.person = this.person;
    this.table.drawWindow();
    this.drawBulk();
    this.details.draw();
  }

  putBulk() {
    this.bulk = byId("tasks-bulk");
    this.bulkWords = make("strong", {});
    this.bulkActs = ACTS.filter(({ is_off: isOff }) => !isOff).map(({ id: action, label: word, is_kill: isKill }) => {
      const button = make("button", { type: "button", class: `button ${isKill ? "danger" : ""}`, "data-act": action }, word);
      pressed(button, () => { const ids = this.chosen().map(({ id }) => id); return (event) => begin(action, ids, { x: event.clientX, y: event.clientY }); });
      return button;
    });
    this.bulk.append(this.bulkWords, ...this.bulkActs, make("button", { type: "button", class: "as-link", onclick: () => this.clear() }, "Clear"));
  }

  listen() {
    const { table } = this;
    byId("tasks-group").addEventListener("change", (event) => this.choose({ group: event.target.value, open: [] }));
    table.addEventListener("sort", ({ detail }) => this.sortBy(detail));
    table.addEventListener("toggle", ({ detail }) => this.toggleGroup(detail.key));
    table.addEventListener("select", ({ detail }) => this.select(detail));
    table.addEventListener("open", ({ detail }) => this.open(detail.task, detail.isFocused));
    this.details.addEventListener("closed", () => this.onClosed());
    this.details.addEventListener("open", ({ detail }) => this.open(detail));
    // A finger that lies on the glass holds nothing: it is gone before the next look.
    table.body.addEventListener("pointerenter", (event) => { this.isPointerIn = event.pointerType !== "touch"; });
    table.body.addEventListener("pointerleave", () => { this.isPointerIn = false; this.settle(); });
    table.body.addEventListener("focusout", () => setTimeout(() => this.settle()));
    document.addEventListener("keydown", (event) => this.onKey(event));
    this.store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") this.look(); });
    addEventListener("popstate", () => location.reload());
  }

  keep(change) {
    Object.assign(this.view, change);
    writeView(this.view, this.usual, this.view.group === "none" ? [] : this.view.open.map((key) => ["open", key]));
  }

  choose(change) {
    this.keep(change);
    this.table.drawHead(this.view);
    this.look(true);
  }

  sortBy({ sort, first }) {
    const isSame = this.view.sort === sort;
    this.choose({ sort, order: isSame ? (this.view.order === "asc" ? "desc" : "asc") : first });
  }

  toggleGroup(key) {
    const open = this.view.open.includes(key) ? this.view.open.filter((one) => one !== key) : [...this.view.open, key];
    this.choose({ open: open.slice(-100) });
  }

  get isHeld() {
    return this.isPointerIn || this.selected.size > 0 || this.table.body.contains(document.activeElement) || document.querySelector("dialog[open]") !== null;
  }

  /** `isAsked`: somebody asked for another order. */
  ask(isAsked = false) {
    this.isAsked ||= isAsked;
    return look(queryOf(this.view, MOST_TASKS));
  }

  take(answer) {
    this.answer = answer;
    this.root.classList.remove("old");
    this.filter.markWrong(false);
    if (this.isAsked || !this.isHeld) this.apply();
    else this.merge();
    this.isAsked = false;
    this.details.refresh();
  }

  /** The newest values, in the order that somebody reads. */
  merge() {
    const found = merged(this.lines, linesOf(this.answer, this.view));
    const words = heldWords(found);
    say(this.hintWords, `Order frozen: ${words}`);
    show(this.hint, words !== "");
    this.putLines(found.lines);
  }

  settle() {
    if (this.answer !== null && !this.isHeld && !this.hint.hidden) this.apply();
  }

  apply() {
    show(this.hint, false);
    this.putLines(linesOf(this.answer, this.view));
  }

  putLines(lines) {
    this.lines = lines;
    this.drop();
    this.draw();
  }

  /** A filter with a mistake is asked again when it is another. */
  fail(error) {
    const isFilter = error.status === 400;
    this.filter.markWrong(isFilter);
    if (isFilter) { say(byId("tasks-words"), error.message.replace(/^filter, at (\d+): /, (_, at) => `At ${Number(at) + 1}: `)); byId("tasks-words").classList.add("wrong"); if (this.answer === null) this.table.draw([], "The filter above has a mistake."); return false; }
    super.fail(error);
    this.root.classList.add("old");
    if (this.answer === null) this.table.draw([], "No data yet.");
    return true;
  }

  draw() {
    const { total, items, groups } = this.answer;
    this.table.chosen = new Set(this.selected.keys());
    this.table.opened = this.view.task;
    this.table.draw(this.lines, this.view.filter === "" ? "No task uses a GPU." : "No task matches.");
    const words = byId("tasks-words");
    words.classList.remove("wrong");
    const count = groups ? `${plural(total, "task")} in ${plural(groups.length, this.view.group)}` : plural(total, "task");
    say(words, !groups && total > items.length ? `${count}; first ${amount(items.length)} are here` : count);
    this.drawBulk();
  }

  // Who has ended is no target any more. What merely stands on no line now stays chosen.
  drop() {
    for (const line of this.lines) {
      if (!this.selected.has(line.key)) continue;
      if (line.isGone && this.view.filter === "") this.selected.delete(line.key);
      else if (!line.isGone) this.selected.set(line.key, line.task);
    }
  }

  select({ key, isRange }) {
    const keys = isRange && this.anchor !== null ? this.between(this.anchor, key) : [key];
    const isTaken = isRange || !this.selected.has(key);
    for (const one of keys) {
      const line = this.lines[this.table.at.get(one)];
      if (line?.task === undefined || line.isGone) continue;
      if (isTaken) this.selected.set(one, line.task);
      else this.selected.delete(one);
    }
    if (!isRange) this.anchor = key;
    this.draw();
    this.settle();
  }

  between(from, to) {
    const [first, last] = [this.table.at.get(from), this.table.at.get(to)].sort((a, b) => a - b);
    return first === undefined || last === undefined ? [to] : this.lines.slice(first, last + 1).map(({ key }) => key);
  }

  clear() {
    this.selected.clear();
    this.anchor = null;
    this.draw();
    this.settle();
  }

  chosen() {
    return [...this.selected.values()];
  }

  drawBulk() {
    const tasks = this.chosen();
    const jobs = new Set(tasks.map(jobOf)).size;
    show(this.bulk, tasks.length > 0);
    this.root.classList.toggle("has-bulk", tasks.length > 0);
    say(this.bulkWords, `${plural(jobs, "job")}${jobs === tasks.length ? "" : `, ${plural(tasks.length, "task")}`} selected`);
    for (const button of this.bulkActs) show(button, this.may("user"));
  }

  open(task, isFocused = false) {
    this.keep({ task: task.id });
    this.details.open(task.id, task, isFocused);
    this.table.opened = task.id;
    this.table.drawWindow();
  }

  onClosed() {
    this.keep({ task: "" });
    this.table.opened = "";
    this.table.drawWindow();
    if (this.table.focusKey !== null) this.table.focus(this.table.focusKey);
  }

  onKey(event) {
    if (document.querySelector("dialog[open]") !== null || event.defaultPrevented) return;
    if (event.key === "Escape") { this.escape(event); return; }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); this.filter.focus(); }
    if (["ArrowDown", "Home"].includes(event.key) && !this.table.body.contains(event.target) && !this.details.root.contains(event.target) && this.lines.length > 0) { event.preventDefault(); this.table.focus(this.table.focusKey !== null && this.table.at.has(this.table.focusKey) ? this.table.focusKey : this.lines[0].key); }
  }

  escape(event) {
    if (this.filter.isOpen) this.filter.close();
    else if (event.target === this.filter.field) { this.filter.put(""); this.filter.field.blur(); }
    else if (this.details.isOpen) this.details.close();
    else if (this.selected.size > 0) this.clear();
  }
}
