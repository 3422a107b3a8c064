// Tasks as a list: whose, what, how much, and what may be done. An item is one task's for as long as it stands.

import { me } from "../parts/account.mjs";
import { get, several } from "../parts/api.mjs";
import { Lines, make, say, show } from "../parts/dom.mjs";
import { age, bytesWords, secondsSince } from "../parts/format.mjs";
import { drawActs } from "./act_buttons.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { managerWords } from "./tasks_model.mjs";
import { explain } from "../parts/tips.mjs";

export const MOST_TASKS = 50;

export class TaskLines {
  constructor() {
    Object.assign(this, { person: null, uuid: null, nameOf: null, title: make("h3", {}, "Tasks"), list: make("ul", { class: "tasks" }) });
    this.lines = new Lines(this.list, ({ id }) => id, () => this.line(), false);
    me().then((person) => { this.person = person; }, () => {});
  }

  /** `count` of all, of which `tasks` are shown; `uuid`: what each takes of this GPU, else of all; `nameOf`: what each is
   * called in a job whose owner and command stand above. */
  draw(tasks, { count, uuid = null, none = "No task", nameOf = null }) {
    const more = count > tasks.length ? `, ${tasks.length} shown` : "";
    say(this.title, count === 0 ? none : `Tasks (${count}${more})`);
    Object.assign(this, { uuid, nameOf });
    this.lines.draw(tasks);
  }

  line() {
    const [owner, manager, command, figures, acts] = [make("strong", {}), make("span", { class: "manager" }), make("code", { tabindex: "0" }), make("span", { class: "figures" }), make("div", { class: "task-acts" })];
    explain(figures, "Memory held on this GPU; SM: share of time in which its kernels ran; process id; time since start.");
    const draw = (task) => {
      say(owner, this.nameOf?.(task) ?? task.user ?? "owner unknown");
      show(command, this.nameOf === null);
      this.drawActs(acts, task);
      say(command, shortCommand(task.command));
      command.title = wholeCommand(task.command);
      say(figures, taskFigures(task, this.uuid === null ? task : task.gpus?.find((use) => use.uuid === this.uuid) ?? {}));
      say(manager, managerWords(task) ?? "");
      manager.title = manager.textContent;
    };
    return { root: make("li", {}, make("div", { class: "task-head" }, owner, manager), command, figures, acts), draw };
  }

  drawActs(place, task) {
    const traits = ({ id: action, label }) => ({ class: `row-act ${action}`, "aria-label": `${label} task ${task.pid}` });
    drawActs(place, task, this.person, traits, { more: [make("a", { class: "row-act", href: `/tasks?task=${encodeURIComponent(task.id)}` }, "Details")] });
  }
}

export function tasksOf({ tasks }) {
  return several("tasks", (tasks ?? []).slice(0, MOST_TASKS), get).catch(() => []);
}

function taskFigures(task, use) {
  const sm = use.sm_pct === null || use.sm_pct === undefined ? "SM unknown" : `SM ${Math.round(use.sm_pct)} %`;
  const old = task.started_at === null ? "age unknown" : age(secondsSince(task.started_at));
  const state = task.state === null || task.state === "running" ? [] : [task.state];
  return [bytesWords(use.mem_used_bytes, "memory unknown"), sm, `pid ${task.pid}`, old, ...state].join("  ·  ");
}
