// The head of a GPU, Node or Compare page: its title, its links, and the metrics that its GPUs never report.

import { neverOf } from "./chart_plan.mjs";
import { byId, make, redraw, say, show } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";
import { nodeAddress } from "../parts/missing.mjs";
import { nameMetrics } from "../fleet/gpu_metrics.mjs";
import { nameTab } from "../parts/tab.mjs";
import { explainedList, settleList } from "../parts/tips.mjs";

/** @type {(place: MachinePlace, node: Hub.NodeView | null, gpus: Hub.GpuView[]) => void} */
export function drawHead(place, node, gpus) {
  const [first] = gpus;
  const { kind } = place;
  const title = titleOf(kind, node, gpus);
  say(byId("lines-title"), title);
  say(
    byId("lines-subtitle"),
    kind === "gpu" ? first.name : node !== null && kind === "node" ? nodeWords(node, gpus) : "",
  );
  nameTab(title);
  const link = byId("lines-node");
  show(link, kind === "gpu");
  byId("lines-past").setAttribute("href", pastAddress(place));
  if (kind === "gpu") {
    link.setAttribute("href", nodeAddress(first.node));
    say(link, first.host);
  }
}

/** @type {(kind: string, node: Hub.NodeView | null, gpus: Hub.GpuView[]) => string} */
function titleOf(kind, node, gpus) {
  if (kind === "gpu") return `${gpus[0].host} · GPU ${gpus[0].place}`;
  if (kind === "node") return node?.host ?? "";
  return gpus.length === 0 ? "Nothing to compare" : `${plural(gpus.length, "GPU")} compared`;
}

/**
 * "8 × H100 80GB HBM3 · driver 580.95.05 · CUDA 13.0 · agent 0.1.0".
 * @type {(node: Hub.NodeView, gpus: Hub.GpuView[]) => string}
 */
function nodeWords({ driver_version: driver, cuda_version: cuda, agent_version: agent }, gpus) {
  const boards = [...grouped(gpus, ({ name }) => name.replace(/^NVIDIA /, ""))].map(
    ([name, those]) => `${those.length} × ${name}`,
  );
  const versions = [
    ["driver", driver],
    ["CUDA", cuda],
    ["agent", agent],
  ]
    .filter(([, version]) => version)
    .map((words) => words.join(" "));
  return [...boards, ...versions].join(" · ");
}

/**
 * Draws the head where the address means no machine, or several, with links to what may be meant.
 * @type {(place: MachinePlace, error: LinkedError) => void}
 */
export function drawUnknown({ kind, name }, { status, links = [] }) {
  const what = kind === "node" ? "node" : "GPU";
  const title = status === 409 ? `Which ${what}?` : `Unknown ${what}`;
  say(byId("lines-title"), title);
  say(byId("lines-subtitle"), name ?? "");
  nameTab(title);
  show(byId("lines-nearest"), links.length > 0);
  redraw(
    byId("lines-nearest"),
    links.map(({ textContent }) => textContent),
    () => links,
  );
}

/**
 * Names the metrics that these GPUs never report, and why.
 * @type {(gpus: Hub.GpuView[], book: MetricBook) => void}
 */
export function drawNever(gpus, book) {
  const { unsupported, denied } = neverOf(gpus, book);
  const place = byId("lines-never");
  /** @type {[string, Metric[]][]} */
  const parts = [
    ["Not supported here: ", unsupported],
    ["Denied by the driver (agent lacks permission): ", denied],
  ];
  place.replaceChildren(
    ...parts
      .filter(([, metrics]) => metrics.length > 0)
      .flatMap(([words, metrics]) => {
        const names = make("span", {});
        nameMetrics(names, metrics);
        return [words, names];
      }),
  );
  explainedList(place);
  settleList(place);
}

/**
 * Returns the address of the History page of these machines.
 * @type {(place: MachinePlace) => string}
 */
export function pastAddress({ kind, id, uuids }) {
  const query = new URLSearchParams();
  if (kind === "compare") for (const uuid of uuids ?? []) query.append("gpu", uuid);
  else query.append(kind, id ?? "");
  return `/history?${query}`;
}
