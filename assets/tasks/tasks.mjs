// The Tasks page: what is asked of the hub, what holds the order still, and what may be done.

import { me } from "../parts/account.mjs";
import { look } from "../parts/api.mjs";
import { ACTS } from "../actions/action_words.mjs";
import { begin, isAtLeast, pressed } from "../actions/actions.mjs";
import { sentence } from "../parts/dialog.mjs";
import { byId, isTyping, make, say, show } from "../parts/dom.mjs";
import { amount, plural } from "../parts/format.mjs";
import { TaskDetails } from "./task_details.mjs";
import { TasksTable } from "./tasks_table.mjs";
import { addressOf, heldWords, jobOf, linesOf, merged, queryOf, readView } from "./tasks_model.mjs";

const EVERY_MS = 2_000;
const FILTER_WAIT_MS = 250;
const MOST_TASKS = 1_000;

export class Tasks {
  constructor(root, live, store, holds) {
    Object.assign(this, { root, live, store, view: readView(location.search), lines: [], selected: new Map(), isPointerIn: false, answer: null, lookNumber: 0, person: null, anchor: null });
    this.table = new TasksTable(byId("tasks-place"));
    this.details = new TaskDetails(store, holds);
    this.putFilter();
    this.putBulk();
    this.hint = byId("tasks-hint");
    this.hintWords = make("span", {});
    this.hint.append(this.hintWords, make("button", { type: "button", class: "as-link", onclick: () => this.apply() }, "Apply"));
    this.listen();
    byId("tasks-group").value = this.view.group;
    this.table.drawHead(this.view);
    if (this.view.task !== "") this.details.open(this.view.task, null);
    me().then((person) => { this.person = this.table.person = this.details.person = person; this.table.drawWindow(); this.drawBulk(); this.details.draw(); }, () => {});
    this.look(true);
  }

  putFilter() {
    this.filter = make("input", { id: "tasks-filter", type: "search", autocomplete: "off", autocapitalize: "off", spellcheck: "false", placeholder: "user:alice & mem>50%", maxlength: "400", "aria-describedby": "tasks-words" });
    this.filter.value = this.view.filter;
    byId("tasks-filter-place").append(this.filter);
  }

  putBulk() {
    this.bulk = byId("tasks-bulk");
    this.bulkWords = make("strong", {});
    this.bulkActs = ACTS.map(({ id: action, label: word, is_kill: isKill }) => {
      const button = make("button", { type: "button", class: `button ${isKill ? "danger" : ""}`, "data-act": action }, word);
      pressed(button, () => { const ids = this.chosen().map(({ id }) => id); return (event) => begin(action, ids, { x: event.clientX, y: event.clientY }); });
      return button;
    });
    this.bulk.append(this.bulkWords, ...this.bulkActs, make("button", { type: "button", class: "as-link", onclick: () => this.clear() }, "Clear"));
  }

  listen() {
    const { table } = this;
    byId("tasks-group").addEventListener("change", (event) => this.choose({ group: event.target.value, open: [] }));
    this.filter.addEventListener("input", () => { clearTimeout(this.typing); this.typing = setTimeout(() => this.choose({ filter: this.filter.value.trim() }), FILTER_WAIT_MS); });
    table.addEventListener("sort", ({ detail }) => this.sortBy(detail));
    table.addEventListener("toggle", ({ detail }) => this.toggleGroup(detail.key));
    table.addEventListener("select", ({ detail }) => this.select(detail));
    table.addEventListener("open", ({ detail }) => this.open(detail.task, detail.isFocused));
    table.addEventListener("act", ({ detail }) => begin(detail.action, [detail.task.id], detail.from));
    this.details.addEventListener("closed", () => this.onClosed());
    this.details.addEventListener("open", ({ detail }) => this.open(detail));
    // A finger that lies on the glass holds nothing: it is gone before the next look.
    table.body.addEventListener("pointerenter", (event) => { this.isPointerIn = event.pointerType !== "touch"; });
    table.body.addEventListener("pointerleave", () => { this.isPointerIn = false; this.settle(); });
    table.body.addEventListener("focusout", () => setTimeout(() => this.settle()));
    byId("tasks-filter-help").addEventListener("click", () => show(byId("tasks-popover"), byId("tasks-popover").hidden));
    this.root.addEventListener("click", (event) => this.onClick(event));
    document.addEventListener("keydown", (event) => this.onKey(event));
    document.addEventListener("visibilitychange", () => this.look());
    this.live.addEventListener("state", () => { if (this.live.state === "live") this.look(); });
    this.store.addEventListener("change", ({ detail }) => { if (detail?.state === "done") this.look(); });
    addEventListener("popstate", () => location.reload());
  }

  choose(change) {
    Object.assign(this.view, change);
    history.replaceState(history.state, "", addressOf(this.view));
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

  /** Now, and again while it is looked at. `isAsked`: somebody asked for another order. */
  async look(isAsked = false) {
    clearTimeout(this.timer);
    if (document.hidden) return;
    const number = (this.lookNumber += 1);
    this.isAsked ||= isAsked;
    try {
      const answer = await look(queryOf(this.view, MOST_TASKS));
      if (number !== this.lookNumber) return;
      this.take(answer);
    } catch (error) {
      if (number !== this.lookNumber) return;
      this.fail(error);
    }
    this.timer = setTimeout(() => this.look(), EVERY_MS);
  }

  take(answer) {
    this.answer = answer;
    this.root.classList.remove("old");
    show(byId("tasks-problem"), false);
    this.filter.setAttribute("aria-invalid", "false");
    const newest = linesOf(answer, this.view);
    if (this.isAsked || !this.isHeld) this.lines = newest;
    else this.lines = this.merge(newest);
    if (this.isAsked || !this.isHeld) show(this.hint, false);
    this.isAsked = false;
    this.drop();
    this.draw();
    this.details.refresh();
  }

  merge(newest) {
    const found = merged(this.lines, newest);
    const words = heldWords(found);
    say(this.hintWords, `Order held: ${words}`);
    show(this.hint, words !== "");
    return found.lines;
  }

  settle() {
    if (this.answer !== null && !this.isHeld && !this.hint.hidden) this.apply();
  }

  apply() {
    show(this.hint, false);
    this.lines = linesOf(this.answer, this.view);
    this.drop();
    this.draw();
  }

  fail(error) {
    const isFilter = error.status === 400;
    this.filter.setAttribute("aria-invalid", String(isFilter));
    if (isFilter) { say(byId("tasks-words"), error.message.replace(/^filter, at (\d+): /, (_, at) => `At ${Number(at) + 1}: `)); byId("tasks-words").classList.add("wrong"); return; }
    say(byId("tasks-problem"), `This list is not up to date: ${sentence(error.message)}`);
    show(byId("tasks-problem"), true);
    this.root.classList.add("old");
    if (this.answer === null) this.table.draw([], "Nothing is known yet.");
  }

  draw() {
    const { total, items, groups } = this.answer;
    this.table.chosen = new Set(this.selected.keys());
    this.table.opened = this.view.task;
    this.table.draw(this.lines, this.view.filter === "" ? "No task uses a Gpu." : "No task matches.");
    const words = byId("tasks-words");
    words.classList.remove("wrong");
    const count = groups ? `${plural(total, "task")} in ${plural(groups.length, this.view.group)}` : plural(total, "task");
    say(words, !groups && total > items.length ? `${count}; the first ${amount(items.length)} are here` : count);
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
    const isAllowed = isAtLeast(this.person, "user");
    for (const button of this.bulkActs) show(button, isAllowed);
  }

  open(task, isFocused = false) {
    this.view.task = task.id;
    history.replaceState(history.state, "", addressOf(this.view));
    this.details.open(task.id, task, isFocused);
    this.table.opened = task.id;
    this.table.drawWindow();
  }

  onClosed() {
    this.view.task = this.table.opened = "";
    history.replaceState(history.state, "", addressOf(this.view));
    this.table.drawWindow();
    if (this.table.focusKey !== null) this.table.focus(this.table.focusKey);
  }

  onClick(event) {
    const example = event.target.closest("[data-example]");
    if (example !== null) { this.filter.value = example.dataset.example; this.choose({ filter: this.filter.value }); show(byId("tasks-popover"), false); }
    else if (event.target.closest("#tasks-popover, #tasks-filter-help") === null) show(byId("tasks-popover"), false);
  }

  onKey(event) {
    if (document.querySelector("dialog[open]") !== null || event.defaultPrevented) return;
    if (event.key === "Escape") { this.escape(event); return; }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { event.preventDefault(); this.filter.focus(); this.filter.select(); }
    if (["ArrowDown", "Home"].includes(event.key) && !this.table.body.contains(event.target) && !this.details.root.contains(event.target) && this.lines.length > 0) { event.preventDefault(); this.table.focus(this.table.focusKey !== null && this.table.at.has(this.table.focusKey) ? this.table.focusKey : this.lines[0].key); }
  }

  escape(event) {
    if (!byId("tasks-popover").hidden) show(byId("tasks-popover"), false);
    else if (event.target === this.filter) { this.filter.value = ""; this.filter.blur(); this.choose({ filter: "" }); }
    else if (this.details.isOpen) this.details.close();
    else if (this.selected.size > 0) this.clear();
  }
}
