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
  /** @type {Person | null} */
  person = null;
  /** @type {string | null} */
  uuid = null;
  /** @type {((task: Hub.TaskView) => string | null) | null} */
  nameOf = null;
  title = make("h3", {}, "Tasks");
  list = make("ul", { class: "tasks" });

  constructor() {
    /** @type {Lines<Hub.TaskView>} */
    this.lines = new Lines(
      this.list,
      ({ id }) => id,
      () => this.line(),
      false,
    );
    me().then(
      (person) => {
        this.person = person;
      },
      () => {},
    );
  }

  /**
   * `count` of all, of which `tasks` are shown; `uuid`: what each takes of this GPU, else of all; `nameOf`: what each is
   * called in a job whose owner and command stand above.
   * @param {Hub.TaskView[]} tasks
   * @param {{ count: number, uuid?: string | null, none?: string, nameOf?: TaskLines["nameOf"] }} look
   */
  draw(tasks, { count, uuid = null, none = "No task", nameOf = null }) {
    const more = count > tasks.length ? `, ${tasks.length} shown` : "";
    say(this.title, count === 0 ? none : `Tasks (${count}${more})`);
    this.uuid = uuid;
    this.nameOf = nameOf;
    this.lines.draw(tasks);
  }

  line() {
    const [owner, manager, command, figures, acts] = [
      make("strong"),
      make("span", { class: "manager" }),
      make("code", { tabindex: "0" }),
      make("span", { class: "figures" }),
      make("div", { class: "task-acts" }),
    ];
    explain(
      figures,
      "Memory held on this GPU; SM: share of time in which its kernels ran; process id; time since start.",
    );
    /** @type {(task: Hub.TaskView) => void} */
    const draw = (task) => {
      say(owner, this.nameOf?.(task) ?? task.user ?? "owner unknown");
      show(command, this.nameOf === null);
      this.drawActs(acts, task);
      say(command, shortCommand(task.command));
      command.title = wholeCommand(task.command);
      say(
        figures,
        taskFigures(
          task,
          this.uuid === null ? task : (task.gpus.find((use) => use.uuid === this.uuid) ?? null),
        ),
      );
      say(manager, managerWords(task) ?? "");
      manager.title = manager.textContent;
    };
    return {
      root: make(
        "li",
        {},
        make("div", { class: "task-head" }, owner, manager),
        command,
        figures,
        acts,
      ),
      draw,
    };
  }

  /** @type {(place: HTMLElement, task: Hub.TaskView) => void} */
  drawActs(place, task) {
    /** @type {(row: Hub.ActionRow) => Traits} */
    const traits = ({ id: action, label }) => ({
      "class": `row-act ${action}`,
      "aria-label": `${label} task ${task.pid}`,
    });
    drawActs(place, task, this.person, traits, {
      more: [
        make(
          "a",
          { class: "row-act", href: `/tasks?task=${encodeURIComponent(task.id)}` },
          "Details",
        ),
      ],
    });
  }
}

/** @type {(gpu: { tasks?: string[] | null }) => Promise<Hub.TaskView[]>} */
export function tasksOf({ tasks }) {
  return several("tasks", (tasks ?? []).slice(0, MOST_TASKS), get).catch(() => []);
}

/** @type {(task: Hub.TaskView, use: Pick<Hub.TaskView, "mem_used_bytes" | "sm_pct"> | null) => string} */
function taskFigures(task, use) {
  const pct = use?.sm_pct ?? null;
  const sm = pct === null ? "SM unknown" : `SM ${Math.round(pct)} %`;
  const old = task.started_at === null ? "age unknown" : age(secondsSince(task.started_at));
  const state = task.state === null || task.state === "running" ? [] : [task.state];
  return [
    bytesWords(use?.mem_used_bytes, "memory unknown"),
    sm,
    `pid ${task.pid}`,
    old,
    ...state,
  ].join("  ·  ");
}
