// Addresses of Node, GPU and Compare pages. A host name means a node while no other has it; once it is
// found, the page keeps to the ids.

import { ApiError, get, look, lookAtAll, several, single } from "../parts/api.mjs";
import { gpuAddress, link, nearestNodes, nodeAddress } from "../parts/missing.mjs";

const MOST_COMPARED = 16;

/**
 * {kind, name, place}: `place` of a GPU on the node `name`, or null where `name` is its UUID.
 * @type {(address: Pick<Location, "pathname" | "search">) => MachinePlace}
 */
export function readPlace({ pathname, search }) {
  const [, kind, ...names] = pathname.split("/");
  if (kind === "compare")
    return { kind, uuids: new URLSearchParams(search).getAll("gpu").slice(0, MOST_COMPARED) };
  const [name, place = null] = names.map(decodeURIComponent);
  return { kind, name, place };
}

/**
 * @type {(place: MachinePlace, node: Hub.NodeView | null, gpus: Hub.GpuView[]) => MachinePlace}
 */
export const idOf = (place, node, gpus) => ({
  ...place,
  id: place.kind === "gpu" ? gpus[0].uuid : node?.id,
});

/**
 * Throws an `ApiError` of 404 or 409, with `links` to what may be meant. The page comes by every two
 * seconds: a slow hub is not asked twice.
 * @type {(place: MachinePlace) => Promise<Machines>}
 */
export async function findMachines({ kind, id, name, place, uuids }) {
  if (kind === "compare") return { node: null, gpus: await several("gpus", uuids ?? [], get) };
  if (kind === "gpu" && (place === null || id !== undefined))
    return { node: null, gpus: [await gpuOf(id ?? name ?? "")] };
  const node =
    id === undefined ? await nodeCalled(name ?? "", place) : await single("nodes", id, get);
  const gpus = await lookAtAll("gpus", `&node=${encodeURIComponent(node.id)}`, get);
  return { node, gpus: kind === "node" ? gpus : [gpuAt(node, gpus, place)] };
}

/** @type {(uuid: string) => Promise<Hub.GpuView>} */
async function gpuOf(uuid) {
  const [gpu] = await several("gpus", [uuid], get);
  if (gpu === undefined)
    throw missing(
      "No node reports this GPU, or you do not have access to it.",
      await nearestNodes(uuid),
    );
  return gpu;
}

/** @type {(name: string, place: string | null | undefined) => Promise<Hub.NodeView>} */
async function nodeCalled(name, place) {
  const { items } = await look(`nodes?${new URLSearchParams({ id: name })}`);
  /** @type {(node: string) => string} */
  const addressOf = (node) =>
    (place ?? null) === null ? nodeAddress(node) : gpuAddress(node, place ?? "");
  if (items.length === 0)
    throw missing(
      `There is no node ${name}, or you do not have access to it.`,
      await nearestNodes(name),
    );
  if (items.length > 1)
    throw missing(
      `${items.length} nodes are named ${name}. Which one?`,
      items.map(({ id, fingerprint, group, state }) =>
        link(fingerprint, addressOf(id), ` ${group}, ${state}`),
      ),
      409,
    );
  return items[0];
}

/**
 * @type {(node: Hub.NodeView, gpus: Hub.GpuView[], place: string | null | undefined) =>
 *   Hub.GpuView}
 */
function gpuAt(node, gpus, place) {
  const match = gpus.find((gpu) => gpu.place === place);
  if (match === undefined)
    throw missing(
      `${node.host} has no GPU ${place}.`,
      gpus.map((gpu) => link(`GPU ${gpu.place}`, gpuAddress(node.host, gpu.place))),
    );
  return match;
}

/** @type {(detail: string, links: HTMLElement[], status?: number) => LinkedError} */
function missing(detail, links, status = 404) {
  return Object.assign(new ApiError(status, { detail }), { links });
}

/**
 * The address by host name, where that means this node alone; null: it does not.
 * @type {(place: MachinePlace, host: string, gpu: Hub.GpuView | undefined) => Promise<string |
 *   null>}
 */
export async function properAddress({ kind }, host, gpu) {
  if (kind === "compare") return null;
  const { items } = await look(`nodes?${new URLSearchParams({ id: host })}`).catch(() => ({
    items: [],
  }));
  if (items.length !== 1) return null;
  return kind === "node" || gpu === undefined ? nodeAddress(host) : gpuAddress(host, gpu.place);
}
