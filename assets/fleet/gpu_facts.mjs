// Facts of a GPU that do not change, its links to the others, and its node.

import { factLines, make, redraw } from "../parts/dom.mjs";
import { bytesWords, plural } from "../parts/format.mjs";
import { agentWords, readerWords } from "./node_words.mjs";

const MOST_PEERS = 15;

/** @type {[string, string, (value: any) => string][]} */
const FACTS = [
  ["uuid", "UUID", (value) => value],
  ["mig_profile", "MIG profile", (value) => value],
  ["parent_uuid", "MIG instance of", (value) => value],
  ["gpu_instance", "GPU instance", String],
  ["compute_instance", "Compute instance", String],
  ["pci_bus_id", "PCI bus", (value) => value],
  ["minor", "Device file", (value) => `/dev/nvidia${value}`],
  ["numa_node", "NUMA node", String],
  ["serial", "Serial", (value) => value],
  ["vbios", "VBIOS", (value) => value],
  ["compute_capability", "Compute capability", (value) => value],
  ["mem_total_bytes", "Memory", (value) => bytesWords(value)],
  ["power_limit_w", "Power limit", watts],
  ["power_limit_default_w", "Power limit, default", watts],
  ["power_limit_min_w", "Power limit, minimum", watts],
  ["power_limit_max_w", "Power limit, maximum", watts],
  ["sm_clock_max_mhz", "Maximum SM clock", megahertz],
  ["mem_clock_max_mhz", "Maximum memory clock", megahertz],
  ["temp_slowdown_c", "Throttles at", degrees],
  ["temp_shutdown_c", "Shuts down at", degrees],
  ["mem_temp_max_c", "Maximum memory temperature", degrees],
  ["mem_margin_min_c", "Memory throttle margin", degrees],
  ["accounting_on", "Accounting of finished tasks", (value) => (value ? "on" : "off")],
];

/** @type {(value: number) => string} */
function watts(value) {
  return `${Math.round(value)} W`;
}
/** @type {(value: number) => string} */
function megahertz(value) {
  return `${Math.round(value)} MHz`;
}
/** @type {(value: number) => string} */
function degrees(value) {
  return `${Math.round(value)} °C`;
}

/**
 * A list of [label, words], redrawn only when it has changed. Stacked: one line for each part of the words; a
 * number that grows longer then does not wrap and move everything below.
 */
export class Facts {
  /** @param {{ isStacked?: boolean }} traits */
  constructor({ isStacked = false } = {}) {
    this.root = make("dl", { class: "facts" });
    this.isStacked = isStacked;
  }

  /** @type {(pairs: LabelledWords[]) => void} */
  draw(pairs) {
    redraw(this.root, pairs, () =>
      factLines(
        this.isStacked ? pairs.map(([label, words]) => [label, ...stacked(words ?? "")]) : pairs,
      ),
    );
  }
}

/** @type {(words: string) => HTMLElement[]} */
const stacked = (words) =>
  words.split(", ").map((part) => make("span", { class: "fact-part" }, part));

/** @type {(gpu: Hub.GpuView) => LabelledWords[]} */
export function boardFacts(gpu) {
  // What was set since is read beside the facts.
  /** @type {Record<string, any>} */
  const facts = {
    uuid: gpu.uuid,
    ...gpu.facts,
    power_limit_w: gpu.values.power_limit_w ?? gpu.facts.power_limit_w,
  };
  return FACTS.filter(([key]) => facts[key] !== null && facts[key] !== undefined).map(
    ([key, label, words]) => [label, words(facts[key])],
  );
}

/**
 * Returns the links of this GPU to the others of its node.
 * @type {(uuid: string, links: Hub.GpuLinkView[] | null, nameOf: (uuid: string) => string) =>
 *   LabelledWords[]}
 */
export function peerFacts(uuid, links, nameOf) {
  /** @type {[string, string][]} */
  const peers = (links ?? [])
    .filter(({ a, b }) => a === uuid || b === uuid)
    .map(({ a, b, path, nvlinks }) => [
      nameOf(a === uuid ? b : a),
      nvlinks === null || nvlinks === undefined || nvlinks === 0
        ? path
        : `${path}, ${plural(nvlinks, "NVLink")}`,
    ]);
  peers.sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  return peers.length > MOST_PEERS
    ? [...peers.slice(0, MOST_PEERS), ["And", `${peers.length - MOST_PEERS} more`]]
    : peers;
}

/**
 * Returns facts of a node's agent: what it can do now, and what it costs.
 * @type {(node: Hub.NodeView) => LabelledWords[]}
 */
export function nodeFacts(node) {
  /** @type {LabelledWords[]} */
  const pairs = [
    ["Driver", node.driver_version],
    ["Reader", readerWords(node)],
    ["Agent", agentWords(node)],
    ["System", node.platform],
    ["Actions stopped", node.holds.join("; ")],
  ];
  return pairs.filter(([, words]) => words !== null && words !== undefined && words !== "");
}
