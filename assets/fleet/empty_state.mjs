// The fleet without a GPU: what to do next, said by the page itself.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { isAdmin, me } from "../parts/account.mjs";
import { get } from "../parts/api.mjs";
import { copyable } from "../parts/dialog.mjs";
import { byId, make, redraw, show } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

/** @type {Record<string, string>} */
const READER_WORDS = {
  starting: "first read in progress",
  hung: "the driver does not answer",
  failed: "read error",
  no_library: "no driver library",
  no_driver: "no driver",
  no_gpus: "no GPU",
  released: "driver released on request",
};

/**
 * Draws what stands in place of the map until the fleet is known, and where it has no GPU.
 * @type {(root: HTMLElement, picture: FleetState, view: FleetView) => void}
 */
export function drawNotice(root, picture, { group, view }) {
  const { isKnown, isThen, count, nodes, metric, own } = picture;
  const isEmpty = isKnown && count === 0;
  const isComing = metric === null || (group === "owner" && own.owner.length === 0);
  const isLoading = !isKnown || (isComing && !isEmpty && !isThen);
  root.classList.toggle("loading", isLoading);
  show(byId("skeleton"), isLoading);
  show(byId("notice"), isEmpty);
  show(byId("heatmap"), !isEmpty && view === "map");
  if (isEmpty) drawEmpty(byId("notice"), nodes.size);
}

/**
 * Draws the steps to a first GPU. Called with every picture; builds only when there is something new to say.
 * @type {(place: HTMLElement, nodeCount: number) => Promise<void>}
 */
async function drawEmpty(place, nodeCount) {
  const nodes =
    nodeCount === 0
      ? []
      : await get("nodes?limit=100").then(
          (answer) => answer.items,
          () => [],
        );
  const person = await me().catch(() => null);
  const key = [
    person?.name,
    ...nodes.map(({ host, reader }) => [host, reader?.state, reader?.detail]),
  ];
  redraw(place, key, () => (nodes.length === 0 ? noNode(person) : noGpu(nodes)));
}

/** @type {(person: Person | null) => HTMLElement[]} */
function noNode(person) {
  const isEverything = person === null || person.groups.includes("*");
  return [
    make("h2", {}, "No node yet"),
    ...(isEverything
      ? []
      : [
          make(
            "p",
            {},
            `You see the nodes of the group ${person.groups.join(", ")}; there are none.`,
          ),
        ]),
    ...(person !== null && isAdmin(person) ? forAdmin() : forOthers()),
    make(
      "p",
      {},
      "No GPU at hand? ",
      make("code", {}, "gpudeck demo"),
      " shows a simulated fleet.",
    ),
  ];
}

function forAdmin() {
  return [
    make(
      "p",
      {},
      "You get one command to paste on a machine with GPUs. The node appears here within seconds.",
    ),
    make(
      "p",
      {},
      make("a", { class: "button first", href: "/settings#nodes/connect" }, "Connect a node"),
    ),
  ];
}

function forOthers() {
  return [
    make(
      "p",
      {},
      "An admin can connect one in Settings, or with a token created on the hub's machine:",
    ),
    copyable("gpudeck token create agent", "the command"),
  ];
}

/** @type {(nodes: Hub.NodeView[]) => HTMLElement[]} */
function noGpu(nodes) {
  const rows = nodes.map(({ host, reader }) =>
    make("li", {}, make("strong", {}, host), make("span", {}, nodeWords(reader))),
  );
  return [
    make("h2", {}, "No GPU yet"),
    make("p", {}, `${plural(nodes.length, "node")} connected, but none reports a GPU.`),
    make("ul", { class: "empty-nodes" }, ...rows),
  ];
}

/** @type {(reader: Hub.ReaderView | null) => string} */
function nodeWords(reader) {
  if (reader === null || reader === undefined) return "no data from its reader yet";
  return reader.detail === "" ? (READER_WORDS[reader.state] ?? reader.state) : reader.detail;
}
