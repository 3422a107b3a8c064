// The rows of the Tasks page. Only those in sight are in the document, and a row is one task's for
// as long as it is there: no element is ever given to another task.

import { isAtLeast } from "../parts/account.mjs";
import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { Teller, make, say, show } from "../parts/dom.mjs";
import { age, amount, bytesWords, moment, plural, secondsSince } from "../parts/format.mjs";
import { drawActs } from "./act_buttons.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { COLUMNS, managerWords } from "./tasks_model.mjs";
import { explain } from "../parts/tips.mjs";

const MARGIN_ROWS = 8;
const MOST_PRINTED = 1_000;

/** Events: sort {sort}, open {task, line}, toggle {key}, select {key, isRange}. */
export class TasksTable extends Teller {
  constructor(root) {
    super();
    Object.assign(this, { root, lines: [], rows: new Map(), at: new Map(), person: null, chosen: new Set(), opened: "", focusKey: null, lastG: -Infinity });
    this.heads = COLUMNS.map((column) => this.head(column));
    this.all = make("span", { role: "columnheader", class: "t-select" }, make("span", { class: "unseen" }, "Selected"));
    const acts = make("span", { role: "columnheader", class: "t-acts" }, make("span", { class: "unseen" }, "Actions"));
    this.headRow = make("div", { role: "row", class: "t-head", "aria-rowindex": "1" }, this.all, ...this.heads, acts);
    this.body = make("div", { role: "rowgroup", class: "t-body" });
    this.grid = make("div", { role: "treegrid", class: "t-grid", "aria-label": "Tasks", "aria-multiselectable": "true" }, make("div", { role: "rowgroup", class: "t-headgroup" }, this.headRow), this.body);
    this.empty = make("p", { class: "none", role: "status" }, "Loading …");
    root.append(this.grid, this.empty);
    root.addEventListener("scroll", () => this.drawWindow(), { passive: true });
    addEventListener("scroll", () => this.drawWindow(), { passive: true });
    addEventListener("gpudeck-print", ({ detail }) => { this.isOnPaper = detail; this.drawWindow(); });
    new ResizeObserver(() => requestAnimationFrame(() => this.drawWindow())).observe(root);
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("focusin", (event) => this.onFocus(event));
  }

  head(column) {
    const button = make("button", { type: "button", "data-sort": column.sort, onclick: () => this.tell("sort", column) }, column.head);
    explain(button, `${column.meaning} Click to sort.`);
    return make("span", { role: "columnheader", class: `t-${column.key}`, "aria-sort": "none" }, button);
  }

  drawHead({ sort, order, group }) {
    this.grid.classList.toggle("by-job", group === "job"); // each row is one: a column says no more
    this.heads.forEach((head, at) => head.setAttribute("aria-sort", COLUMNS[at].sort !== sort ? "none" : order === "asc" ? "ascending" : "descending"));
  }

  draw(lines, emptyWords) {
    this.lines = lines;
    this.at = new Map(lines.map(({ key }, at) => [key, at]));
    this.grid.setAttribute("aria-rowcount", String(lines.length + 1));
    show(this.empty, lines.length === 0);
    if (lines.length === 0) say(this.empty, emptyWords);
    this.drawWindow();
  }

  get rowHeight() {
    return matchMedia("(max-width: 760px)").matches ? 96 : 34;
  }

  // In its own box on a wide screen, with the page on a phone.
  window(height) {
    if (this.isOnPaper) return [0, Math.min(this.lines.length, MOST_PRINTED)];
    const box = this.root.getBoundingClientRect();
    const body = this.body.getBoundingClientRect();
    const top = Math.max(box.top, 0);
    const bottom = Math.min(this.root.scrollHeight > this.root.clientHeight + 1 ? box.bottom : innerHeight, innerHeight);
    const first = Math.max(0, Math.floor((top - body.top) / height) - MARGIN_ROWS);
    return [first, Math.min(this.lines.length, Math.ceil((bottom - body.top) / height) + MARGIN_ROWS)];
  }

  drawWindow() {
    const height = this.rowHeight;
    this.body.style.height = `${this.lines.length * height}px`;
    const [first, last] = this.window(height);
    const wanted = new Set(this.lines.slice(first, last).map(({ key }) => key));
    // The one with the focus stays, wherever it is scrolled to.
    if (this.focusKey !== null && this.at.has(this.focusKey) && this.rows.get(this.focusKey)?.root.contains(document.activeElement)) wanted.add(this.focusKey);
    for (const [key, row] of this.rows) if (!wanted.has(key)) { row.root.remove(); this.rows.delete(key); }
    const order = [...wanted].sort((a, b) => this.at.get(a) - this.at.get(b));
    order.forEach((key, place) => this.drawRow(this.lines[this.at.get(key)], this.at.get(key), place, height));
    this.drawRoving();
  }

  drawRow(line, at, place, height) {
    if (!this.rows.has(line.key)) this.rows.set(line.key, line.group ? this.buildGroup(line) : this.buildTask(line));
    const row = this.rows.get(line.key);
    row.root.style.transform = `translateY(${at * height}px)`;
    row.root.setAttribute("aria-rowindex", String(at + 2));
    if (this.body.children[place] !== row.root) this.body.insertBefore(row.root, this.body.children[place] ?? null);
    row.draw(line);
  }

  drawRoving() {
    const key = this.focusKey !== null && this.rows.has(this.focusKey) ? this.focusKey : this.rows.keys().next().value;
    for (const [own, row] of this.rows) row.root.tabIndex = own === key ? 0 : -1;
  }

  /** Where a line stands: a cell for each column, one before them and one behind. */
  row(key, traits, select) {
    const cells = Object.fromEntries(COLUMNS.map(({ key: name }) => [name, make("span", { role: "gridcell", class: `t-${name}` })]));
    const acts = make("span", { role: "gridcell", class: "t-acts" });
    const root = make("div", { role: "row", ...traits, "data-key": key, tabindex: "-1" }, make("span", { role: "gridcell", class: "t-select" }, select), Object.values(cells), acts);
    return { root, cells, acts, line: null };
  }

  buildTask({ key, task: { id } }) {
    const check = make("input", { type: "checkbox", tabindex: "-1", "aria-label": "Select" });
    const row = this.row(key, { class: "t-row", "data-task": id }, check);
    const [pid, command, keep] = [make("small", { class: "t-pid" }), make("code", {}), make("span", { class: "t-keep", hidden: "" }, "keep")];
    row.cells.command.append(pid, command, keep);
    check.addEventListener("click", (event) => { event.stopPropagation(); this.tell("select", { key, isRange: event.shiftKey }); });
    row.root.addEventListener("click", (event) => { if (event.target.closest("button, input, a") === null && getSelection().isCollapsed) this.onRow(event, row); });
    row.draw = (line) => { row.line = line; this.drawTask(row, line, { pid, command, keep, check }); };
    return row;
  }

  onRow(event, { line }) {
    if (line.isGone) return;
    if (event.ctrlKey || event.metaKey || event.shiftKey) this.tell("select", { key: line.key, isRange: event.shiftKey });
    else this.tell("open", { task: line.task });
  }

  drawTask({ root, cells, acts }, line, { pid, command, keep, check }) {
    const { task } = line;
    const isChosen = this.chosen.has(line.key);
    root.className = `t-row${line.isGone ? " gone" : ""}${task.id === this.opened ? " opened" : ""}${task.state === "paused" ? " paused" : ""}${isIdle(task) ? " idle" : ""}`;
    root.setAttribute("aria-selected", String(isChosen));
    if (check.checked !== isChosen) check.checked = isChosen;
    if (check.disabled !== Boolean(line.isGone)) check.disabled = Boolean(line.isGone);
    say(pid, String(task.pid));
    say(command, shortCommand(task.command));
    command.title = wholeCommand(task.command);
    show(keep, Boolean(task.keep));
    if (task.keep) keep.title = `Keep until ${moment(task.keep.until)}: ${task.keep.because}`;
    const words = taskWords(task, line.isGone);
    for (const [name, text] of Object.entries(words)) say(cells[name], text);
    cells.manager.title = words.manager;
    cells.gpus.title = task.gpus.map(({ uuid }) => uuid).join("\n");
    cells.job.title = task.job_id ?? "";
    drawActs(acts, line.isGone ? null : task, this.person, ({ id: action, label }) => ({ class: `row-act ${action}`, tabindex: "-1", "aria-label": `${label} task ${task.pid} on ${task.host}` }), { isIn: ({ in_rows: isInRows }) => isInRows });
  }

  buildGroup({ key }) {
    const row = this.row(key, { class: "t-row t-group" }, null);
    const { root, cells } = row;
    const [mark, name, command] = [make("span", { class: "t-mark", "aria-hidden": "true" }, "▸"), make("strong", {}), make("code", {})];
    // Of a job, its command leads to its page: the one link that a phone has room for, too.
    const page = make("a", { tabindex: "-1" }, command);
    const bars = { memory: make("i", { class: "t-bar" }), sm: make("i", { class: "t-bar" }) };
    cells.command.append(mark, name, page);
    root.addEventListener("click", (event) => { if (event.target.closest("a, button") === null) this.tell("toggle", { key: row.line.group.key }); });
    const end = make("button", { type: "button", class: "row-act end", tabindex: "-1", "data-act": "end" }, "End");
    pressed(end, () => { const ids = [...row.line.group.act_on]; return (event) => begin("end", ids, { x: event.clientX, y: event.clientY }); });
    row.acts.append(end);
    row.draw = (line) => {
      row.line = line;
      const { group } = line;
      root.classList.toggle("gone", Boolean(line.isGone));
      root.classList.toggle("idle", isIdle(group));
      root.setAttribute("aria-expanded", String(line.isOpen));
      say(mark, line.isOpen ? "▾" : "▸");
      const isJob = group.job_id !== null || group.host !== null;
      say(name, isJob ? plural(group.tasks, "task") : group.user ?? "owner unknown");
      say(command, isJob ? shortCommand(group.command) : plural(group.tasks, "task"));
      const words = { user: isJob ? group.user ?? "unknown" : "", host: group.host ?? plural(group.nodes, "node"), gpus: String(group.gpus), ...figuresOf(group), state: groupState(group, line.isGone), manager: isJob ? managerWords(group) ?? "–" : "" };
      for (const [column, text] of Object.entries(words)) say(cells[column], text);
      cells.manager.title = words.manager;
      root.classList.toggle("paused", group.paused > 0 && !line.isGone);
      if (isJob && group.first_job !== null) page.href = `/job/${encodeURIComponent(group.first_job)}`;
      page.title = isJob ? `The page of this job: ${group.job_id ?? ""}` : "";
      show(end, isJob && !line.isGone && group.act_on.length > 0 && isAtLeast(this.person, "user"));
      end.setAttribute("aria-label", `End this job of ${group.user ?? "an unknown owner"}`);
      if (isJob) {
        drawBar(cells.sm, bars.sm, group.sm_pct, 100);
        drawBar(cells.memory, bars.memory, group.mem_used_bytes, group.mem_total_bytes);
      }
    };
    return row;
  }

  focus(key) {
    const at = this.at.get(key);
    if (at === undefined) return;
    this.focusKey = key;
    this.reveal(at);
    this.drawWindow();
    this.rows.get(key)?.root.focus({ preventScroll: true });
  }

  reveal(at) {
    const height = this.rowHeight;
    const own = this.root.scrollHeight > this.root.clientHeight + 1;
    if (!own) return;
    const top = at * height;
    const room = this.root.clientHeight - this.headRow.offsetHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + height > this.root.scrollTop + room) this.root.scrollTop = top + height - room;
  }

  onFocus(event) {
    const row = event.target.closest("[data-key]");
    if (row !== null) { this.focusKey = row.dataset.key; this.drawRoving(); }
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.at.has(this.focusKey)) return;
    // "g r" goes to the record, and does not resume the task that the focus is on.
    const isAfterG = performance.now() - this.lastG < 1_000;
    this.lastG = event.key === "g" ? performance.now() : -Infinity;
    if (isAfterG) return;
    const at = this.at.get(this.focusKey);
    const line = this.lines[at];
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.lines.length - 1, PageDown: at + 15, PageUp: at - 15 };
    if (event.key in moves) this.focus(this.lines[Math.min(this.lines.length - 1, Math.max(0, moves[event.key]))].key);
    else if (line.group) { if (!["Enter", " ", "ArrowRight", "ArrowLeft"].includes(event.key)) return; this.tell("toggle", { key: line.group.key }); }
    else if (line.isGone) return;
    else if (event.key === "Enter") this.tell("open", { task: line.task, isFocused: true });
    else if (event.key === " " || event.key === "x") this.tell("select", { key: line.key, isRange: event.shiftKey });
    else if (!this.actByKey(event.key, line.task)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  actByKey(key, task) {
    const found = fitting(task).find((row) => row.key === key);
    if (found === undefined || !mayAct(this.person, task)) return false;
    begin(found.id, [task.id]);
    return true;
  }
}

function taskWords(task, isGone) {
  return {
    user: task.user ?? "unknown", host: task.host, gpus: String(task.gpus.length), ...figuresOf(task),
    state: isGone ? "gone" : task.state ?? "–", manager: managerWords(task) ?? "–", job: task.job_id === null || task.job_id === undefined || task.job_id === task.id ? "–" : task.job_id,
  };
}

/** Of all its tasks; of some, how many are paused. */
function groupState({ state, paused, tasks }, isGone) {
  if (isGone) return "gone";
  return paused > 0 && paused < tasks ? `${paused} paused` : state ?? "–";
}

const isIdle = ({ idle_s: seconds }) => seconds !== null && seconds !== undefined;

/** Beside the figure: which share that is. */
function drawBar(cell, bar, value, full) {
  if (value === null || !(full > 0)) { bar.remove(); return; }
  bar.style.setProperty("--share", `${Math.min(100, (100 * value) / full)}%`);
  if (bar.parentNode !== cell) cell.append(bar);
}

/** Of a task, or of a group of them. */
function figuresOf({ mem_used_bytes: bytes, sm_pct: pct, started_at: at, idle_s: seconds }) {
  return { idle: isIdle({ idle_s: seconds }) ? age(seconds) : "–", memory: bytesWords(bytes), sm: pct === null ? "–" : `${amount(pct)} %`, age: at === null ? "–" : age(secondsSince(at)) };
}
