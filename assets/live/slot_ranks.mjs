// The order of slots by name: site, node, index; a MIG instance is right after its board.

/** @import { FleetState } from "./fleet_state.mjs" */

const collator = new Intl.Collator("en", { numeric: true });

/** @type {(fleet: FleetState) => Float64Array} */
export function rankByName(fleet) {
  const nodes = [...fleet.nodes].sort(
    ([, one], [, other]) =>
      collator.compare(one.site ?? "", other.site ?? "") || collator.compare(one.host, other.host),
  );
  const nodeRank = new Map(nodes.map(([node], rank) => [node, rank]));
  return Float64Array.from(
    fleet.uuids,
    (_, slot) => (nodeRank.get(fleet.node[slot]) ?? NaN) * 65_536 + rankOnNode(fleet, slot),
  );
}

/** @type {(fleet: Pick<FleetState, "index" | "instances">, slot: number) => number} */
export function rankOnNode({ index, instances }, slot) {
  const [, gpuInstance = 0, computeInstance = 0] =
    instances.get(slot)?.place.split("/").map(Number) ?? [];
  return index[slot] + (instances.has(slot) ? (1 + 8 * gpuInstance + computeInstance) / 1_024 : 0);
}
