// Words about a node's agent in the drawer; dashboard/pages/node_words.py says the same in Settings.

import { amount, clock, plural } from "../parts/format.mjs";

/** @type {Record<string, string>} */
const READER = {
  starting: "starting",
  ok: "reads",
  hung: "the driver does not answer",
  failed: "read error",
  no_library: "no NVIDIA library",
  no_driver: "no driver",
  no_gpus: "no GPU",
};

/**
 * "reads", or what is wrong and what to do; null where it has not said.
 * @type {(node: Pick<Hub.NodeView, "reader">) => string | null}
 */
export function readerWords({ reader }) {
  if (reader === null || reader === undefined) return null;
  const words = READER[reader.state] ?? reader.state;
  return reader.detail === "" ? words : `${words}: ${reader.detail}`;
}

/**
 * Returns until when the hub refuses the node, and why; null: it does not.
 * @type {(node: Pick<Hub.NodeView, "refused">) => string | null}
 */
export function refusedWords({ refused }) {
  return refused === null || refused === undefined
    ? null
    : `Refused until ${clock(refused.until)}: ${refused.why}`;
}

/**
 * Returns the agent's version, cost and queue, and what of it this hub does not understand.
 * @type {(node: Hub.NodeView) => string}
 */
export function agentWords(node) {
  return [node.agent_version, newerWords(node), ...costWords(node.cost), ...outboxWords(node)]
    .filter((word) => word !== "")
    .join(" · ");
}

/** @type {(node: Hub.NodeView) => string} */
function newerWords({ unknown_types: types = [] }) {
  return types.length === 0
    ? ""
    : `newer than this hub, which does not support ${types.join(", ")}: upgrade the hub first`;
}

/** @type {(cost: Hub.AgentCostView | null) => string[]} */
function costWords(cost) {
  if (cost === null || cost === undefined) return [];
  const { cpu_pct: cpu, memory_bytes: memory, read_s: read } = cost;
  return [
    isKnown(cpu) ? `${amount(cpu, 1)} % CPU` : "",
    isKnown(memory) ? `${amount(memory / 2 ** 20)} MiB` : "",
    isKnown(read) ? `reads in ${amount(read * 1000, read < 0.01 ? 1 : 0)} ms` : "",
  ].filter((word) => word !== "");
}

/** @type {(node: Hub.NodeView) => string[]} */
function outboxWords({ pending, dropped, cost }) {
  const bytes =
    cost !== null && isKnown(cost.outbox_bytes) && (pending ?? 0) > 0
      ? ` (${amount(cost.outbox_bytes / 2 ** 20, 1)} MiB)`
      : "";
  return [
    isKnown(pending) && pending > 20
      ? `${plural(pending, "message")} queued for the hub${bytes}`
      : "",
    isKnown(dropped) && dropped > 0 ? `${plural(dropped, "message")} lost` : "",
  ].filter((word) => word !== "");
}

/** @type {<T>(value: T | null | undefined) => value is T} */
function isKnown(value) {
  return value !== null && value !== undefined;
}
