// The jobs on a node or on compared GPUs, a card for each: whose, what, on which of them, what these do, and its ranks.

import { Lines, make, say, show } from "../parts/dom.mjs";
import { age, amount, plural } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { TaskLines } from "../tasks/task_lines.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { placesWords } from "../pool/pool_model.mjs";
import { launchOf } from "../tasks/tasks_model.mjs";
import { explain } from "../parts/tips.mjs";

/** States of all tasks of a job in which somebody stopped it. */
const STANDSTILLS = ["paused", "suspended"];
const LOAD = "Average utilization of these GPUs, other work on them included.";

/**
 * Pure. A line for each job, those that hold idle GPUs first, then by their first GPU here.
 * @type {(tasks: Hub.TaskView[], gpus: Hub.GpuView[]) => JobHere[]}
 */
export function jobsOn(tasks, gpus) {
  const at = new Map(gpus.map(({ uuid }, place) => [uuid, place]));
  return [...grouped(tasks, launchOf)]
    .map(([key, inside]) => {
      const places = [
        ...new Set(inside.flatMap((task) => task.gpus.map(({ uuid }) => at.get(uuid)))),
      ]
        .filter((place) => place !== undefined)
        .sort((one, other) => one - other);
      const here = places.map((place) => gpus[place]);
      const loads = here
        .map(({ values }) => values.util_pct)
        .filter((value) => value !== undefined);
      const [{ user, command, job_id: job, id }] = inside;
      return {
        key,
        user,
        command,
        job: job ?? id,
        places,
        tasks: inside.sort(byRank),
        standstill: STANDSTILLS.find((one) => inside.every(({ state }) => state === one)) ?? "",
        idleS:
          here.length > 0 && here.every(({ wasted_s: forS }) => typeof forS === "number")
            ? Math.max(...here.map(({ wasted_s: forS }) => forS ?? 0))
            : null,
        load:
          loads.length === 0 ? null : loads.reduce((sum, value) => sum + value, 0) / loads.length,
      };
    })
    .sort(
      (one, other) =>
        Number(other.idleS !== null) - Number(one.idleS !== null) ||
        (one.places[0] ?? Infinity) - (other.places[0] ?? Infinity) ||
        one.job.localeCompare(other.job),
    );
}

/** @type {(task: Hub.TaskView) => number | null} */
const rankOf = ({ owner }) => owner?.rank ?? null;
/** @type {(one: Hub.TaskView, other: Hub.TaskView) => number} */
const byRank = (one, other) => (rankOf(one) ?? -1) - (rankOf(other) ?? -1) || one.pid - other.pid;

export class JobsHere {
  constructor() {
    this.none = make("p", { class: "jobs-none" }, "No job");
    this.list = make("ul", { class: "jobs-here" });
    this.more = make("p", { class: "jobs-none" });
    this.root = make("div", {}, this.none, this.list, this.more);
    /** @type {Lines<JobLine>} */
    this.lines = new Lines(
      this.list,
      ({ key }) => key,
      () => jobCard(),
    );
  }

  /**
   * `count` of all tasks there, of which `tasks` are shown; `nameOf`: what a GPU at this place is called.
   * @type {(tasks: Hub.TaskView[], how: { count: number, gpus: Hub.GpuView[],
   *   nameOf: (place: number) => string }) => void}
   */
  draw(tasks, { count, gpus, nameOf }) {
    const jobs = jobsOn(tasks, gpus);
    const at = new Map(gpus.map(({ uuid }, place) => [uuid, place]));
    show(this.none, jobs.length === 0);
    show(this.more, count > tasks.length);
    say(this.more, `${tasks.length} of ${plural(count, "task")} shown`);
    this.lines.draw(
      jobs.map((job) => ({ ...job, nameOf, at, on: placesWords(job.places.map(nameOf)) })),
    );
  }
}

/** @type {() => DrawnLine<JobLine>} */
function jobCard() {
  const filled = make("s", {});
  const [owner, job, gpus, bar, load] = [
    make("strong", {}),
    make("a", {}),
    make("span", { class: "job-gpus" }),
    make("span", { "class": "job-bar", "aria-hidden": "true" }, filled),
    make("span", {}),
  ];
  const summary = make("summary", {});
  /** @type {any} */
  const ranks = new TaskLines();
  const loads = make("span", { class: "job-load" }, bar, load);
  explain(loads, LOAD);
  /** @type {(job: JobLine) => void} */
  const draw = ({
    user,
    command,
    job: id,
    on,
    idleS,
    standstill,
    load: pct,
    tasks,
    nameOf,
    at,
  }) => {
    say(owner, user ?? "unknown");
    owner.title = user ?? "";
    job.href = `/job/${encodeURIComponent(id)}`;
    say(job, shortCommand(command));
    job.title = wholeCommand(command);
    say(gpus, on === "" ? "no GPU" : on.startsWith("GPU") ? on : `GPU ${on}`);
    const isBusy = standstill === "" && idleS === null && pct !== null;
    show(bar, isBusy);
    filled.style.width = `${pct ?? 0}%`;
    load.className = standstill !== "" ? "job-paused" : idleS === null ? "" : "job-idle";
    say(
      load,
      standstill !== ""
        ? standstill
        : idleS !== null
          ? `idle ${age(idleS)}`
          : pct === null
            ? "unknown"
            : `${amount(pct)} %`,
    );
    const isRanked = tasks.some((task) => rankOf(task) !== null);
    say(summary, plural(tasks.length, isRanked ? "rank" : "task"));
    ranks.draw(tasks, {
      count: tasks.length,
      nameOf: (/** @type {Hub.TaskView} */ task) => partWords(task, nameOf, at),
    });
  };
  return {
    root: make(
      "li",
      {},
      make("div", { class: "job-head" }, owner, gpus, loads),
      job,
      make("details", {}, summary, ranks.list),
    ),
    draw,
  };
}

/**
 * "rank 2 · GPU 5", of a task in the card of its job.
 * @type {(task: Hub.TaskView, nameOf: (place: number) => string, at: Map<string, number>) =>
 *   string}
 */
function partWords(task, nameOf, at) {
  const names = task.gpus
    .map(({ uuid }) => at.get(uuid))
    .filter((place) => place !== undefined)
    .map((place) => nameOf(place));
  const on =
    names.length === 0
      ? ""
      : names[0].startsWith("GPU")
        ? names.join(", ")
        : `GPU ${names.join(", ")}`;
  return [rankOf(task) === null ? "process" : `rank ${rankOf(task)}`, on]
    .filter(Boolean)
    .join(" · ");
}
