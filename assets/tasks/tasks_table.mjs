// The rows of the Tasks page. Only those in sight are in the document, and a row is one task's for
// as long as it is there: no element is ever given to another task.

import { isAtLeast } from "../parts/account.mjs";
import { refusalOf } from "../actions/action_words.mjs";
import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { Teller, make, say, show, targetOf } from "../parts/dom.mjs";
import { age, amount, bytesWords, moment, plural, secondsSince } from "../parts/format.mjs";
import { drawActs } from "./act_buttons.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { managerWords } from "./tasks_model.mjs";
import { explain } from "../parts/tips.mjs";
import { toast } from "../parts/toast.mjs";

/** States in which somebody holds a task; a group counts its tasks in each. */
const STANDSTILLS = /** @type {const} */ (["paused", "suspended"]);
/** @type {(task: Hub.TaskView) => boolean} */
const isAtStandstill = ({ state }) => STANDSTILLS.some((one) => one === state);
const MARGIN_ROWS = 8;
const MOST_PRINTED = 1_000;
// Of what has ended: what it held and did is over.
const ENDED = { mem_used_bytes: null, sm_pct: null, started_at: null, idle_s: null };

/** @extends {Teller<TableEvents>} */
export class TasksTable extends Teller {
  /** @type {TasksLine[]} */
  lines = [];
  /** @type {Map<string, TaskRow>} */
  rows = new Map();
  /** @type {Map<string, number>} */
  at = new Map();
  /** @type {Person | null} */
  person = null;
  /** @type {{ has(key: string): boolean }} */
  chosen = new Set();
  opened = "";
  /** @type {string | null} */
  focusKey = null;
  lastG = -Infinity;
  isOnPaper = false;

  /** @param {HTMLElement} root */
  constructor(root) {
    super();
    this.root = root;
    /** @type {TaskColumn[]} */
    this.columns = JSON.parse(root.dataset.columns ?? "");
    this.heads = this.columns.map((column) => this.head(column));
    const [all, acts] = [
      ["t-select", "Selected"],
      ["t-acts", "Actions"],
    ].map(([name, words]) =>
      make("span", { role: "columnheader", class: name }, make("span", { class: "unseen" }, words)),
    );
    this.headRow = make(
      "div",
      { "role": "row", "class": "t-head", "aria-rowindex": "1" },
      all,
      ...this.heads,
      acts,
    );
    this.body = make("div", { role: "rowgroup", class: "t-body" });
    this.grid = make(
      "div",
      {
        "role": "treegrid",
        "class": "t-grid",
        "aria-label": "Tasks",
        "aria-multiselectable": "true",
      },
      make("div", { role: "rowgroup", class: "t-headgroup" }, this.headRow),
      this.body,
    );
    this.empty = make("p", { class: "none", role: "status" }, "Loading …");
    root.append(this.grid, this.empty);
    root.addEventListener("scroll", () => this.drawWindow(), { passive: true });
    addEventListener("scroll", () => this.drawWindow(), { passive: true });
    addEventListener("gpudeck-print", ({ detail }) => {
      this.isOnPaper = detail;
      this.drawWindow();
    });
    new ResizeObserver(() => requestAnimationFrame(() => this.drawWindow())).observe(root);
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("focusin", (event) => this.onFocus(event));
  }

  /** @type {(column: TaskColumn) => HTMLElement} */
  head(column) {
    const button = make(
      "button",
      { "type": "button", "data-sort": column.sort, "onclick": () => this.tell("sort", column) },
      column.head,
    );
    explain(button, `${column.meaning} Click to sort.`);
    return make(
      "span",
      { "role": "columnheader", "class": `t-${column.key}`, "aria-sort": "none" },
      button,
    );
  }

  /** @type {(view: Values) => void} */
  drawHead({ sort, order, group }) {
    this.grid.classList.toggle("by-job", group === "job"); // each row is one: a column says no more
    this.heads.forEach((head, at) =>
      head.setAttribute(
        "aria-sort",
        this.columns[at].sort !== sort ? "none" : order === "asc" ? "ascending" : "descending",
      ),
    );
  }

  /** @type {(lines: TasksLine[], emptyWords: string) => void} */
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

  get isScrolledItself() {
    return this.root.scrollHeight > this.root.clientHeight + 1;
  }

  /**
   * The first line in sight and the one after the last: in its own box on a wide screen, with the page on a phone.
   * @type {(height: number) => [number, number]}
   */
  window(height) {
    if (this.isOnPaper) return [0, Math.min(this.lines.length, MOST_PRINTED)];
    const box = this.root.getBoundingClientRect();
    const body = this.body.getBoundingClientRect();
    const top = Math.max(box.top, 0);
    const bottom = Math.min(this.isScrolledItself ? box.bottom : innerHeight, innerHeight);
    const first = Math.max(0, Math.floor((top - body.top) / height) - MARGIN_ROWS);
    return [
      first,
      Math.min(this.lines.length, Math.ceil((bottom - body.top) / height) + MARGIN_ROWS),
    ];
  }

  drawWindow() {
    const height = this.rowHeight;
    this.body.style.height = `${this.lines.length * height}px`;
    const keys = new Set(this.lines.slice(...this.window(height)).map(({ key }) => key));
    // The one with the focus stays, wherever it is scrolled to.
    const focused =
      this.focusKey === null || !this.at.has(this.focusKey)
        ? undefined
        : this.rows.get(this.focusKey);
    if (this.focusKey !== null && focused?.root.contains(document.activeElement))
      keys.add(this.focusKey);
    for (const [key, row] of this.rows)
      if (!keys.has(key)) {
        row.root.remove();
        this.rows.delete(key);
      }
    const order = [...keys].map((key) => this.at.get(key) ?? 0).sort((a, b) => a - b);
    order.forEach((at, place) => this.drawRow(this.lines[at], at, place, height));
    this.drawRoving();
  }

  /** @type {(line: TasksLine, at: number, place: number, height: number) => void} */
  drawRow(line, at, place, height) {
    const row =
      this.rows.get(line.key) ?? ("group" in line ? this.buildGroup(line) : this.buildTask(line));
    this.rows.set(line.key, row);
    row.root.style.transform = `translateY(${at * height}px)`;
    row.root.setAttribute("aria-rowindex", String(at + 2));
    if (this.body.children[place] !== row.root)
      this.body.insertBefore(row.root, this.body.children[place] ?? null);
    row.draw(line);
  }

  drawRoving() {
    const key =
      this.focusKey !== null && this.rows.has(this.focusKey)
        ? this.focusKey
        : this.rows.keys().next().value;
    for (const [own, row] of this.rows) row.root.tabIndex = own === key ? 0 : -1;
  }

  /**
   * Makes the row of a line: a cell for each column, one before them and one after.
   * @type {(key: string, traits: Traits, select: HTMLElement | null) => Omit<TaskRow, "draw">}
   */
  row(key, traits, select) {
    const cells = Object.fromEntries(
      this.columns.map(({ key: name }) => [
        name,
        make("span", { role: "gridcell", class: `t-${name}` }),
      ]),
    );
    const acts = make("span", { role: "gridcell", class: "t-acts" });
    const root = make(
      "div",
      { "role": "row", ...traits, "data-key": key, "tabindex": "-1" },
      make("span", { role: "gridcell", class: "t-select" }, select),
      Object.values(cells),
      acts,
    );
    return { root, cells, acts };
  }

  /** @type {(line: TaskLine) => TaskRow} */
  buildTask(first) {
    const { key } = first;
    const check = make("input", { "type": "checkbox", "tabindex": "-1", "aria-label": "Select" });
    const row = this.row(key, { "class": "t-row", "data-task": first.task.id }, check);
    const [pid, command, keep] = [
      make("small", { class: "t-pid" }),
      make("code"),
      make("span", { class: "t-keep", hidden: "" }, "keep"),
    ];
    let line = first;
    row.cells.command.append(pid, command, keep);
    check.addEventListener("click", (event) => {
      event.stopPropagation();
      this.tell("select", { key, isRange: event.shiftKey });
    });
    row.root.addEventListener("click", (event) => {
      if (
        targetOf(event).closest("button, input, a") === null &&
        getSelection()?.isCollapsed !== false
      )
        this.onRow(event, line);
    });
    return {
      ...row,
      draw: (newest) => {
        line = /** @type {TaskLine} */ (newest);
        this.drawTask(row, line, { pid, command, keep, check });
      },
    };
  }

  /** @type {(event: MouseEvent, line: TaskLine) => void} */
  onRow({ ctrlKey, metaKey, shiftKey }, { key, task, isGone }) {
    if (isGone) return;
    if (ctrlKey || metaKey || shiftKey) this.tell("select", { key, isRange: shiftKey });
    else this.tell("open", { task });
  }

  /**
   * @type {(row: Omit<TaskRow, "draw">, line: TaskLine,
   *   parts: { pid: HTMLElement, command: HTMLElement, keep: HTMLElement, check: HTMLInputElement }) => void}
   */
  drawTask({ root, cells, acts }, { key, task, isGone = false }, { pid, command, keep, check }) {
    const isChosen = this.chosen.has(key);
    const figures = isGone ? ENDED : task;
    const standstill = isAtStandstill(task) && !isGone ? ` ${task.state}` : "";
    root.className = `t-row${isGone ? " gone" : ""}${task.id === this.opened ? " opened" : ""}${standstill}${isIdle(figures) ? " idle" : ""}`;
    root.setAttribute("aria-selected", String(isChosen));
    if (check.checked !== isChosen) check.checked = isChosen;
    if (check.disabled !== isGone) check.disabled = isGone;
    say(pid, String(task.pid));
    say(command, shortCommand(task.command));
    command.title = wholeCommand(task.command);
    show(keep, task.keep !== null);
    if (task.keep !== null)
      keep.title = `Keep until ${moment(task.keep.until)}: ${task.keep.because}`;
    fill(cells, {
      user: task.user ?? "unknown",
      host: task.host,
      gpus: String(task.gpus.length),
      ...figuresOf(figures),
      manager: managerWords(task) ?? "–",
      state: isGone ? "gone" : (task.state ?? "–"),
      job: task.job_id === null || task.job_id === task.id ? "–" : task.job_id,
    });
    cells.gpus.title = task.gpus
      .map(({ uuid, place }) => (place === null ? uuid : `GPU ${place}: ${uuid}`))
      .join("\n");
    cells.job.title = task.job_id ?? "";
    drawActs(
      acts,
      isGone ? null : task,
      this.person,
      ({ id: action, label }) => ({
        "class": `row-act ${action}`,
        "tabindex": "-1",
        "aria-label": `${label} task ${task.pid} on ${task.host}`,
      }),
      { isIn: ({ in_rows: isInRows }) => isInRows },
    );
  }

  /** @type {(line: GroupLine) => TaskRow} */
  buildGroup({ key, group: { key: name, act_on: first } }) {
    const row = this.row(key, { class: "t-row t-group" }, null);
    const [mark, words, command] = [
      make("span", { "class": "t-mark", "aria-hidden": "true" }, "▸"),
      make("strong"),
      make("code"),
    ];
    // Of a job, its command leads to its page: the one link that a phone has room for, too.
    const page = make("a", { tabindex: "-1" }, command);
    const end = make(
      "button",
      { "type": "button", "class": "row-act end", "tabindex": "-1", "data-act": "end" },
      "End",
    );
    const bars = { memory: make("i", { class: "t-bar" }), sm: make("i", { class: "t-bar" }) };
    let ids = first;
    row.cells.command.append(mark, words, page);
    row.acts.append(end);
    row.root.addEventListener("click", (event) => {
      if (targetOf(event).closest("a, button") === null) this.tell("toggle", { key: name });
    });
    pressed(end, () => {
      const targets = [...ids];
      return ({ clientX: x, clientY: y }) => begin("end", targets, { x, y });
    });
    return {
      ...row,
      draw: (newest) => {
        const line = /** @type {GroupLine} */ (newest);
        ids = line.group.act_on;
        this.drawGroup(row, line, { mark, words, command, page, end, bars });
      },
    };
  }

  /**
   * @type {(row: Omit<TaskRow, "draw">, line: GroupLine, parts: { mark: HTMLElement, words: HTMLElement,
   *   command: HTMLElement, page: HTMLAnchorElement, end: HTMLElement, bars: Record<string, HTMLElement> }) => void}
   */
  drawGroup(
    { root, cells },
    { group, isOpen, isGone = false },
    { mark, words, command, page, end, bars },
  ) {
    const isJob = group.job_id !== null || group.host !== null;
    const figures = isGone ? ENDED : group;
    root.classList.toggle("gone", isGone);
    root.classList.toggle("idle", isIdle(figures));
    for (const state of STANDSTILLS) root.classList.toggle(state, group[state] > 0 && !isGone);
    root.setAttribute("aria-expanded", String(isOpen));
    say(mark, isOpen ? "▾" : "▸");
    say(words, isJob ? plural(group.tasks, "task") : (group.user ?? "owner unknown"));
    say(command, isJob ? shortCommand(group.command) : plural(group.tasks, "task"));
    fill(cells, {
      user: isJob ? (group.user ?? "unknown") : "",
      host: group.host ?? plural(group.nodes, "node"),
      gpus: String(group.gpus),
      ...figuresOf(figures),
      state: groupState(group, isGone),
      manager: isJob ? (managerWords(group) ?? "–") : "",
    });
    if (isJob && group.first_job !== null)
      page.href = `/job/${encodeURIComponent(group.first_job)}`;
    page.title = isJob ? `The page of this job: ${group.job_id ?? ""}` : "";
    show(end, isJob && !isGone && group.act_on.length > 0 && isAtLeast(this.person, "user"));
    end.setAttribute("aria-label", `End this job of ${group.user ?? "an unknown owner"}`);
    if (!isJob) return;
    drawBar(cells.sm, bars.sm, figures.sm_pct, 100);
    drawBar(cells.memory, bars.memory, figures.mem_used_bytes, group.mem_total_bytes);
  }

  /** @type {(key: string) => void} */
  focus(key) {
    const at = this.at.get(key);
    if (at === undefined) return;
    this.focusKey = key;
    this.reveal(at);
    this.drawWindow();
    this.rows.get(key)?.root.focus({ preventScroll: true });
  }

  /** @type {(at: number) => void} */
  reveal(at) {
    if (!this.isScrolledItself) return;
    const height = this.rowHeight;
    const top = at * height;
    const room = this.root.clientHeight - this.headRow.offsetHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (top + height > this.root.scrollTop + room) this.root.scrollTop = top + height - room;
  }

  /** @type {(event: FocusEvent) => void} */
  onFocus(event) {
    /** @type {HTMLElement | null} */
    const row = targetOf(event).closest("[data-key]");
    if (row !== null) {
      this.focusKey = row.dataset.key ?? null;
      this.drawRoving();
    }
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    const at = this.at.get(this.focusKey ?? "");
    if (event.ctrlKey || event.metaKey || event.altKey || at === undefined) return;
    // "g r" goes to the record, and does not resume the task that the focus is on.
    const isAfterG = performance.now() - this.lastG < 1_000;
    this.lastG = event.key === "g" ? performance.now() : -Infinity;
    if (isAfterG || !this.doesKey(event, at)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @type {(event: KeyboardEvent, at: number) => boolean} */
  doesKey({ key, shiftKey }, at) {
    const line = this.lines[at];
    /** @type {Record<string, number>} */
    const moves = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      Home: 0,
      End: this.lines.length - 1,
      PageDown: at + 15,
      PageUp: at - 15,
    };
    if (key in moves)
      this.focus(this.lines[Math.min(this.lines.length - 1, Math.max(0, moves[key]))].key);
    else if ("group" in line) {
      if (!["Enter", " ", "ArrowRight", "ArrowLeft"].includes(key)) return false;
      this.tell("toggle", { key: line.group.key });
    } else if (line.isGone) return false;
    else if (key === "Enter") this.tell("open", { task: line.task, isFocused: true });
    else if (key === " " || key === "x") this.tell("select", { key: line.key, isRange: shiftKey });
    else return this.actByKey(key, line.task);
    return true;
  }

  /** @type {(key: string, task: Hub.TaskView) => boolean} */
  actByKey(key, task) {
    const row = fitting(task).find((candidate) => candidate.key === key);
    if (row === undefined || !mayAct(this.person, task)) return false;
    const why = refusalOf(row.id, task);
    if (why === "") begin(row.id, [task.id]);
    else toast(why);
    return true;
  }
}

/**
 * Writes the words into the cells; the hover has the whole name of a manager.
 * @type {(cells: Record<string, HTMLElement>, words: Record<string, string>) => void}
 */
function fill(cells, words) {
  for (const [name, text] of Object.entries(words)) say(cells[name], text);
  cells.manager.title = words.manager;
}

/**
 * Returns the state of all its tasks; where some are paused or suspended, how many.
 * @type {(group: Hub.TaskGroup, isGone: boolean) => string}
 */
function groupState({ state, tasks, ...counts }, isGone) {
  if (isGone) return "gone";
  const parts = STANDSTILLS.filter((one) => counts[one] > 0 && counts[one] < tasks);
  return parts.map((one) => `${counts[one]} ${one}`).join(", ") || (state ?? "–");
}

/** @type {(what: { idle_s: number | null }) => boolean} */
const isIdle = ({ idle_s: seconds }) => seconds !== null;

/**
 * Draws next to the figure which share that is.
 * @type {(cell: HTMLElement, bar: HTMLElement, value: number | null, full: number | null) => void}
 */
function drawBar(cell, bar, value, full) {
  if (value === null || full === null || full <= 0) {
    bar.remove();
    return;
  }
  bar.style.setProperty("--share", `${Math.min(100, (100 * value) / full)}%`);
  if (bar.parentNode !== cell) cell.append(bar);
}

/**
 * Returns the figures of a task, or of a group of tasks.
 * @type {(what: Pick<Hub.TaskGroup, "mem_used_bytes" | "sm_pct" | "started_at" | "idle_s">) => Record<string, string>}
 */
function figuresOf({ mem_used_bytes: bytes, sm_pct: pct, started_at: at, idle_s: seconds }) {
  return {
    idle: seconds === null ? "–" : age(seconds),
    memory: bytesWords(bytes),
    sm: pct === null ? "–" : `${amount(pct)} %`,
    age: at === null ? "–" : age(secondsSince(at)),
  };
}
