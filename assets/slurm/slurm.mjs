// The Slurm page: jobs that hold GPUs or wait for some, and nodes, with what Slurm can be asked.

import { sentence } from "../parts/dialog.mjs";
import { make } from "../parts/dom.mjs";
import { age, secondsSince } from "../parts/format.mjs";
import { allocationTable, known, leftCell, nodeCell, softly } from "./allocation_tables.mjs";
import { SchedulerPage } from "./scheduler_page.mjs";

const OWNERS_MAY = ["cancel", "requeue"]; // the hub decides

export default class SlurmPage extends SchedulerPage {
  constructor(root, live, _holds, store) {
    super(root, live, store, {
      key: "slurm", name: "Slurm", thing: "job",
      none: "No agent speaks for Slurm here: start one with --slurm where its client programs are, and name that host in the setting slurm_nodes.",
    });
  }

  rows({ jobs }) { return jobs; }

  title({ cluster }) { return cluster || "Slurm"; }

  notes(one) {
    return [
      one.hidden === "" ? "" : sentence(one.hidden),
      one.rights === "own" ? `Slurm lets the account ${one.account} act on its own jobs alone.` : "",
    ];
  }

  tables(one, jobs) {
    return [
      allocationTable("Jobs", ["Job", "Owner", "State", "Partition", "Nodes", "GPUs", "Without process", "Time", ""], jobs.map((job) => this.job(one, job))),
      allocationTable("Nodes", ["Node", "State", "Allocated", "Partitions", "Reason", ""], one.nodes.map((node) => this.node(one, node)))];
  }

  job(cluster, job) {
    const time = job.started_at === null ? "" : `${age(secondsSince(job.started_at))}${job.limit_s === null ? "" : ` of ${age(job.limit_s)}`}`;
    return make("tr", { "data-job": job.id },
      softly(job.id, job.name, "strong"),
      make("td", {}, job.user ?? "–"),
      softly(job.state, job.reason),
      make("td", {}, job.partition ?? "–"), make("td", {}, job.nodes.join(", ")),
      make("td", {}, known(job.gpus)),
      leftCell(job),
      make("td", {}, time),
      this.acts(cluster, job.may, { job: job.id, submitted_at: Math.round(job.submitted_at) }, `job ${job.id}`, this.may("user") && this.isMine(job.user) ? OWNERS_MAY : []));
  }

  node(cluster, node) {
    return make("tr", { "data-slurm-node": node.name },
      nodeCell(node.name, node.host),
      make("td", {}, node.states.join(" + ")),
      make("td", {}, node.gpus === null ? "–" : `${known(node.allocated)} of ${node.gpus}`),
      make("td", {}, node.partitions), make("td", {}, node.reason),
      this.acts(cluster, node.may, { node: node.name }, `node ${node.name}`));
  }
}
