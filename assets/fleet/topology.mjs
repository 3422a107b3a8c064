// Links between the boards of a node, as in nvidia-smi's table, and in words on hover.

import { make, redraw } from "../parts/dom.mjs";
import { plural } from "../parts/format.mjs";

/** @type {Record<string, string>} */
const SHORT = {
  "board": "IN",
  "one switch": "PIX",
  "switches": "PXB",
  "host bridge": "PHB",
  "numa node": "NODE",
  "system": "SYS",
};
/** @type {Record<string, string>} */
const MEANING = {
  "board": "on the same board",
  "one switch": "through one PCIe switch",
  "switches": "through several PCIe switches",
  "host bridge": "through the CPU's PCIe root",
  "numa node": "between PCIe roots of one NUMA node",
  "system": "between NUMA nodes",
};

/** @type {(place: HTMLElement, links: Hub.GpuLinkView[], gpus: Hub.GpuView[]) => void} */
export function drawTopology(place, links, gpus) {
  const boards = gpus.filter((gpu) => (gpu.facts?.parent_uuid ?? null) === null);
  redraw(
    place,
    [links, boards.map(({ uuid, place: name, facts }) => [uuid, name, facts?.numa_node])],
    () => [
      links.length === 0
        ? make(
            "p",
            { class: "events-none" },
            boards.length < 2 ? "Only one board." : "Not reported by the driver.",
          )
        : table(links, boards),
    ],
  );
}

/** @type {(links: Hub.GpuLinkView[], boards: Hub.GpuView[]) => HTMLElement} */
function table(links, boards) {
  const between = new Map(
    links.flatMap((link) => [
      [`${link.a} ${link.b}`, link],
      [`${link.b} ${link.a}`, link],
    ]),
  );
  const head = make(
    "tr",
    {},
    make("td", {}),
    ...boards.map(({ place }) => make("th", { scope: "col" }, place)),
    make("th", { scope: "col" }, "NUMA"),
  );
  const rows = boards.map((from) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, from.place),
      ...boards.map((to) => cell(from, to, between.get(`${from.uuid} ${to.uuid}`))),
      make("td", {}, String(from.facts?.numa_node ?? "–")),
    ),
  );
  return make(
    "div",
    { "class": "topology", "tabindex": "0", "role": "region", "aria-label": "Table of links" },
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows)),
  );
}

/**
 * @type {(from: Hub.GpuView, to: Hub.GpuView, link: Hub.GpuLinkView | undefined) => HTMLElement}
 */
function cell(from, to, link) {
  if (from === to) return make("td", { class: "self" }, "·");
  if (link === undefined) return make("td", {}, "–");
  const count = link.nvlinks ?? 0;
  const nv = count > 0 ? `, ${plural(count, "NVLink")}` : "";
  return make(
    "td",
    {
      class: count > 0 ? "nv" : "",
      title: `GPU ${from.place} to GPU ${to.place}: ${MEANING[link.path] ?? link.path}${nv}`,
    },
    count > 0 ? `NV${count}` : (SHORT[link.path] ?? link.path),
  );
}
