// Tasks as a list: whose, what, how much, and what may be done. An item is one task's for as long as it stands.

import { me } from "../parts/account.mjs";
import { begin, fitting, mayAct, pressed } from "../actions/actions.mjs";
import { getTasks } from "../parts/api.mjs";
import { make, say } from "../parts/dom.mjs";
import { age, gibibytes, secondsSince } from "../parts/format.mjs";
import { managerWords } from "./tasks_model.mjs";
import { explain } from "../parts/tips.mjs";

export const MOST_TASKS = 50;

export class TaskLines {
  constructor() {
    Object.assign(this, { items: new Map(), person: null, title: make("h3", {}, "Tasks"), list: make("ul", { class: "tasks" }) });
    me().then((person) => { this.person = person; }, () => {});
  }

  /** `count` of all, of which `tasks` are shown; `uuid`: what each takes of this Gpu, else of all. */
  draw(tasks, { count, uuid = null, none = "No task" }) {
    const more = count > tasks.length ? `, ${tasks.length} shown` : "";
    say(this.title, count === 0 ? none : `Tasks (${count}${more})`);
    const ids = new Set(tasks.map(({ id }) => id));
    for (const [id, item] of this.items) if (!ids.has(id)) { item.root.remove(); this.items.delete(id); }
    for (const task of tasks) this.drawTask(task, uuid);
  }

  drawTask(task, uuid) {
    if (!this.items.has(task.id)) {
      const item = taskItem();
      this.items.set(task.id, item);
      this.list.append(item.root);
    }
    const item = this.items.get(task.id);
    const { owner, command, figures, manager } = item;
    say(owner, task.user ?? "owner unknown");
    this.drawActs(item, task);
    say(command, task.command ?? "command not known");
    command.title = task.command ?? "";
    say(figures, taskFigures(task, uuid === null ? task : task.gpus?.find((use) => use.uuid === uuid) ?? {}));
    say(manager, managerWords(task) ?? "");
    manager.title = manager.textContent;
  }

  // An item is one task's for as long as it is there, and so are its buttons.
  drawActs(item, task) {
    const fit = this.person !== null && mayAct(this.person, task) ? fitting(task) : [];
    const text = fit.map(({ id }) => id).join();
    if (item.drawnActs === text) return;
    item.drawnActs = text;
    const { id, pid } = task;
    item.acts.replaceChildren(...fit.map(({ id: action, label: word }) => {
      const button = make("button", { type: "button", class: `row-act ${action}`, "data-act": action, "aria-label": `${word} task ${pid}` }, word);
      pressed(button, () => (event) => begin(action, [id], { x: event.clientX, y: event.clientY }));
      return button;
    }), make("a", { class: "row-act", href: `/tasks?task=${encodeURIComponent(id)}` }, "Details"));
  }
}

export function tasksOf({ tasks }) {
  return getTasks((tasks ?? []).slice(0, MOST_TASKS)).catch(() => []);
}

function taskItem() {
  const item = { owner: make("strong", {}), acts: make("div", { class: "task-acts" }), drawnActs: null, command: make("code", { tabindex: "0" }), figures: make("span", { class: "figures" }), manager: make("span", { class: "manager" }) };
  explain(item.figures, "Memory it holds on this Gpu; SM: share of time in which a kernel of it ran; process number; time since it began.");
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
