// The jobs of one person as rows: what each is and uses, what is wrong with it, and its actions.

import { make, redraw } from "../parts/dom.mjs";
import { age, amount, bytesWords, plural, secondsSince } from "../parts/format.mjs";
import { Rows, parts, stacked } from "../parts/rows.mjs";
import { shortCommand, wholeCommand } from "../parts/commands.mjs";
import { SIGNS } from "./job_signs.mjs";

const IDLE_FROM_S = 60;

/** Rows of groups of tasks as the API gives them, with their `findings`; `act(action, ids)`. */
export const jobRows = (act, mayAct) => new Rows({
  label: "Your jobs", key: ({ key }) => key, isSteady: true,
  empty: "No job of yours runs on a GPU now. One is listed some seconds after its start.",
  columns: [
    { head: "Job", draw: drawJob },
    { head: "Load", meaning: "Utilization, average of its GPUs", draw: (cell, job) => drawShare(cell, job.util_pct === null ? "not known" : `${amount(job.util_pct)} %`, job.util_pct, 100) },
    { head: "Memory", draw: (cell, job) => drawShare(cell, bytesWords(job.mem_used_bytes, "not known"), job.mem_used_bytes, job.mem_total_bytes) },
    { head: "Idle for", draw: (cell, { idle_s: idle }) => parts(cell, ["span", (idle ?? 0) >= IDLE_FROM_S ? "pool-idle" : null, idle === null ? "–" : idle < IDLE_FROM_S ? "in use" : age(idle)]) },
    { head: "Findings", draw: drawFindings },
  ],
  actions: (job) => (mayAct(job) ? actionsOf(job, act) : []),
});

function actionsOf(job, act) {
  const words = (verb) => ({ "aria-label": `${verb} ${shortCommand(job.command)}`, "data-act": verb.toLowerCase() });
  const [verb, action] = job.paused > 0 ? ["Resume", "resume"] : ["Pause", "pause"];
  return [[verb, (newest) => act(action, [...newest.act_on]), words(verb)],
    ["End", (newest) => act("end", [...newest.act_on]), { ...words("End"), class: "button small danger" }]];
}

function drawJob(cell, job) {
  const { command, host, nodes, gpus, started_at: at, first_job: id, paused, tasks } = job;
  const small = [host ?? plural(nodes, "node"), plural(gpus, "GPU"), at === null ? "" : `for ${age(secondsSince(at))}`].filter(Boolean).join(" · ");
  redraw(cell, [command, small, id, paused], () => [make("div", { class: "stacked" },
    make("a", { class: "name", href: `/job/${encodeURIComponent(id)}`, title: wholeCommand(command) }, shortCommand(command)),
    paused === 0 ? null : make("span", { class: "pill stale" }, paused === tasks ? "paused" : `${paused} of ${tasks} paused`), make("small", {}, small))]);
}

/** Beside the figure: which share that is. */
function drawShare(cell, words, value, full) {
  const share = value === null || !(full > 0) ? null : Math.min(100, (100 * value) / full);
  redraw(cell, [words, share], () => [make("div", { class: "my-work-share" }, make("span", {}, words), share === null ? null : make("i", { class: "t-bar", style: `--share: ${share}%` }))]);
}

function drawFindings(cell, { findings }) {
  redraw(cell, findings, () => (findings.length === 0 ? ["none"] : findings.map(({ kind, sentence }) => make("p", { class: "my-work-finding" }, make("strong", {}, `${SIGNS[kind] ?? kind}. `), sentence))));
}
