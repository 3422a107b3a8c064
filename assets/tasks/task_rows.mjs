// The rows of the Tasks page as the hub answers them every two seconds: what holds their order still, and which are selected.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { ApiError, look, several } from "../parts/api.mjs";
import { allWithin, byId, say, show } from "../parts/dom.mjs";
import { amount, plural } from "../parts/format.mjs";
import { Looker } from "../parts/looker.mjs";
import { TasksTable } from "./tasks_table.mjs";
import { heldWords, hiddenOf, jobOf, keyOf, linesOf, merged, queryOf } from "./tasks_model.mjs";

const EVERY_MS = 2_000;
const MOST_TASKS = 1_000;
const MOST_ASKED = 50;

/** @extends {Looker<Hub.TaskList, { wrong: boolean }>} */
export class TaskRows extends Looker {
  /** @type {TasksLine[]} */
  lines = [];
  /** @type {Map<string, Hub.TaskView>} */
  selected = new Map();
  /** @type {Hub.TaskList | null} */
  answer = null;
  /** @type {string | null} */
  selectedFrom = null;
  isPointerIn = false;
  isAsked = false; // somebody asked for another order

  /**
   * @param {{ root: HTMLElement, live: LiveLink, view: Values }} page
   * @param {CommandStore} store
   */
  constructor(page, store) {
    super(page.live, EVERY_MS, { problem: byId("tasks-list-problem"), what: "list" });
    this.page = page;
    this.table = new TasksTable(byId("tasks-place"));
    this.words = byId("tasks-words");
    this.hint = byId("tasks-hint");
    this.bulk = byId("tasks-bulk");
    const { body } = this.table;
    // A finger that lies on the glass holds nothing: it is gone before the next look.
    body.addEventListener("pointerenter", (event) => {
      this.isPointerIn = event.pointerType !== "touch";
    });
    body.addEventListener("pointerleave", () => {
      this.isPointerIn = false;
      this.settle();
    });
    body.addEventListener("focusout", () => setTimeout(() => this.settle()));
    byId("tasks-apply").addEventListener("click", () => this.apply());
    byId("tasks-clear").addEventListener("click", () => this.clear());
    this.table.addEventListener("select", ({ detail }) => this.select(detail));
    store.addEventListener("change", ({ detail }) => {
      if (detail?.state === "done") this.look();
    });
    this.table.drawHead(page.view);
    this.meet();
    this.look(true);
  }

  async meet() {
    await super.meet();
    this.table.person = this.person;
    this.table.drawWindow();
    this.drawBulk();
  }

  get isHeld() {
    return (
      this.isPointerIn ||
      this.selected.size > 0 ||
      this.table.body.contains(document.activeElement) ||
      document.querySelector("dialog[open]") !== null
    );
  }

  /** @type {(isAsked?: boolean) => Promise<Hub.TaskList>} */
  ask(isAsked = false) {
    this.isAsked ||= isAsked;
    this.table.drawHead(this.page.view);
    return look(queryOf(this.page.view, MOST_TASKS));
  }

  /** @type {(answer: Hub.TaskList) => void} */
  take(answer) {
    this.answer = answer;
    this.page.root.classList.remove("old");
    this.tell("wrong", false);
    if (this.isAsked || !this.isHeld) this.apply();
    else this.merge(answer);
    this.isAsked = false;
    this.dropEnded(answer);
  }

  /**
   * Takes tasks that have ended out of the selection: they are no targets any more. Those that are only out of sight,
   * by a filter, in a closed group or behind the first of many, stay in it.
   * @type {(answer: Hub.TaskList) => Promise<void>}
   */
  async dropEnded(answer) {
    const hidden = hiddenOf(this.selected, answer.items).slice(0, MOST_ASKED);
    if (hidden.length === 0) return;
    const there = await several(
      "tasks",
      hidden.map(([, { id }]) => id),
    ).catch(() => null);
    if (there === null) return;
    const keys = new Set(there.map(keyOf));
    for (const [key] of hidden) if (!keys.has(key)) this.selected.delete(key);
    this.draw();
    this.settle();
  }

  /**
   * The newest values, in the order that somebody reads.
   * @type {(answer: Hub.TaskList) => void}
   */
  merge(answer) {
    const merge = merged(this.lines, linesOf(answer, this.page.view));
    const words = heldWords(merge);
    say(byId("tasks-hint-words"), `Order frozen: ${words}`);
    show(this.hint, words !== "");
    this.putLines(merge.lines);
  }

  settle() {
    if (!this.isHeld && !this.hint.hidden) this.apply();
  }

  apply() {
    show(this.hint, false);
    if (this.answer !== null) this.putLines(linesOf(this.answer, this.page.view));
  }

  /**
   * Draws the lines.
   * @type {(lines: TasksLine[]) => void}
   */
  putLines(lines) {
    this.lines = lines;
    for (const line of lines)
      if (this.selected.has(line.key) && !("group" in line) && !line.isGone)
        this.selected.set(line.key, line.task);
    this.draw();
  }

  /**
   * A filter with a mistake is asked again when it is another.
   * @type {(error: Error) => boolean}
   */
  fail(error) {
    const isFilter = error instanceof ApiError && error.status === 400;
    this.tell("wrong", isFilter);
    if (isFilter)
      say(
        this.words,
        error.message.replace(/^filter, at (\d+): /, (_, at) => `At ${Number(at) + 1}: `),
      );
    else {
      super.fail(error);
      this.page.root.classList.add("old");
    }
    this.words.classList.toggle("wrong", isFilter);
    if (this.answer === null)
      this.table.draw([], isFilter ? "The filter above has a mistake." : "No data yet.");
    return !isFilter;
  }

  draw() {
    const {
      answer,
      table,
      page: { view },
    } = this;
    table.chosen = this.selected;
    table.opened = view.task;
    if (answer === null) return;
    const { total, items, groups } = answer;
    table.draw(this.lines, view.filter === "" ? "No task uses a GPU." : "No task matches.");
    this.words.classList.remove("wrong");
    const count = groups
      ? `${plural(total, "task")} in ${plural(groups.length, view.group)}`
      : plural(total, "task");
    say(
      this.words,
      !groups && total > items.length ? `${count}; first ${amount(items.length)} are here` : count,
    );
    this.drawBulk();
  }

  /** @type {(choice: { key: string, isRange: boolean }) => void} */
  select({ key, isRange }) {
    const keys =
      isRange && this.selectedFrom !== null ? this.between(this.selectedFrom, key) : [key];
    const isTaken = isRange || !this.selected.has(key);
    for (const one of keys) {
      const line = this.lines[this.table.at.get(one) ?? -1];
      if (line === undefined || "group" in line || line.isGone) continue;
      if (isTaken) this.selected.set(one, line.task);
      else this.selected.delete(one);
    }
    if (!isRange) this.selectedFrom = key;
    this.draw();
    this.settle();
  }

  /** @type {(from: string, to: string) => string[]} */
  between(from, to) {
    const [one, other] = [this.table.at.get(from), this.table.at.get(to)];
    if (one === undefined || other === undefined) return [to];
    return this.lines.slice(Math.min(one, other), Math.max(one, other) + 1).map(({ key }) => key);
  }

  clear() {
    this.selected.clear();
    this.selectedFrom = null;
    this.draw();
    this.settle();
  }

  /** Draws the bar of the selected tasks. Its buttons are the page's, which takes their targets when one is pressed. */
  drawBulk() {
    const tasks = [...this.selected.values()];
    const jobs = new Set(tasks.map(jobOf)).size;
    show(this.bulk, tasks.length > 0);
    this.page.root.classList.toggle("has-bulk", tasks.length > 0);
    say(
      byId("tasks-chosen"),
      `${plural(jobs, "job")}${jobs === tasks.length ? "" : `, ${plural(tasks.length, "task")}`} selected`,
    );
    for (const button of allWithin(this.bulk, "[data-act]")) {
      button.dataset.targets = JSON.stringify(tasks.map(({ id }) => id));
      show(button, this.may("user"));
    }
  }
}
