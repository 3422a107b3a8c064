// The jobs on a node or on compared GPUs: whose, what, on which of them, and what these do.

import { Lines, make, say, show } from "../parts/dom.mjs";
import { age, amount } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { shortCommand, wholeCommand } from "../tasks/commands.mjs";
import { launchOf } from "../tasks/tasks_model.mjs";
import { explain } from "../parts/tips.mjs";

const HEADS = [["Owner"], ["Job"], ["GPUs", "number"], ["Load"]];
const LOAD = "Average utilization of these GPUs, other work on them included.";

/** Pure. A line for each job, those that hold idle GPUs first, then by their first GPU here. */
export function jobsOn(tasks, gpus) {
  const at = new Map(gpus.map(({ uuid }, place) => [uuid, place]));
  return [...grouped(tasks, launchOf)].map(([key, inside]) => {
    const places = [...new Set(inside.flatMap((task) => task.gpus.map(({ uuid }) => at.get(uuid))))].filter((place) => place !== undefined).sort((one, other) => one - other);
    const here = places.map((place) => gpus[place]);
    const loads = here.map(({ values }) => values.util_pct).filter((value) => value !== undefined);
    const [{ user, command, job_id: job, id }] = inside;
    return {
      key, user, command, job: job ?? id, places,
      isPaused: inside.every(({ state }) => state === "paused"),
      idleS: here.length > 0 && here.every(({ wasted_s: forS }) => forS !== undefined) ? Math.max(...here.map(({ wasted_s: forS }) => forS)) : null,
      load: loads.length === 0 ? null : loads.reduce((sum, value) => sum + value, 0) / loads.length,
    };
  }).sort((one, other) => (other.idleS !== null) - (one.idleS !== null) || (one.places[0] ?? Infinity) - (other.places[0] ?? Infinity) || one.job.localeCompare(other.job));
}

/** Pure. Of ["0", "1", "2", "5"], where these follow each other: "0-2, 5". `places` are sorted. */
export function runsOf(places, nameOf) {
  const runs = [];
  for (const place of places) {
    if (runs.at(-1)?.at(-1) === place - 1) runs.at(-1).push(place); else runs.push([place]);
  }
  return runs.flatMap((run) => (run.length > 2 ? [`${nameOf(run[0])}-${nameOf(run.at(-1))}`] : run.map(nameOf))).join(", ");
}

export class JobsHere {
  constructor() {
    this.none = make("p", { class: "jobs-none" }, "No job");
    const heads = HEADS.map(([words, looks = ""]) => make("th", { scope: "col", class: looks }, words));
    explain(heads[3], LOAD);
    const body = make("tbody", {});
    this.table = make("table", { class: "jobs-here" }, make("thead", {}, make("tr", {}, heads)), body);
    this.root = make("div", {}, this.none, this.table);
    this.lines = new Lines(body, ({ key }) => key, () => jobLine());
  }

  /** `nameOf`: what a GPU at this place is called. */
  draw(tasks, gpus, nameOf) {
    const jobs = jobsOn(tasks, gpus);
    show(this.none, jobs.length === 0);
    show(this.table, jobs.length > 0);
    this.lines.draw(jobs.map((job) => ({ ...job, on: runsOf(job.places, nameOf) })));
  }
}

function jobLine() {
  const [owner, job, gpus, bar, load] = [make("td", {}), make("a", {}), make("td", { class: "number" }), make("span", { class: "job-bar", "aria-hidden": "true" }, make("s", {})), make("span", {})];
  const draw = ({ user, command, job: id, on, idleS, isPaused, load: pct }) => {
    say(owner, user ?? "unknown");
    owner.title = user ?? "";
    job.href = `/job/${encodeURIComponent(id)}`;
    say(job, shortCommand(command));
    job.title = wholeCommand(command);
    say(gpus, on === "" ? "–" : on);
    gpus.title = gpus.textContent;
    const isBusy = !isPaused && idleS === null && pct !== null;
    show(bar, isBusy);
    bar.firstChild.style.width = `${pct ?? 0}%`;
    load.className = isPaused ? "job-paused" : idleS === null ? "" : "job-idle";
    say(load, isPaused ? "paused" : idleS !== null ? `idle ${age(idleS)}` : pct === null ? "unknown" : `${amount(pct)} %`);
  };
  return { root: make("tr", {}, owner, make("td", {}, job), gpus, make("td", { class: "job-load" }, bar, load)), draw };
}
