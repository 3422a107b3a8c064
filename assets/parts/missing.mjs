// Page for an address that leads nowhere: offers the nearest ones.

import { lookAtAll } from "./api.mjs";
import { byId, make, say } from "./dom.mjs";
import { PAGES } from "./pages.mjs";

const MOST = 4;

export default class MissingPage {
  constructor() {
    const { pathname } = location;
    say(byId("missing-words"), `No page at ${pathname}.`);
    const places = PAGES.flatMap(({ name, address }) =>
      address === null ? [] : [{ name, address }],
    );
    const pages = nearest(pathname, places, ({ address }) => address);
    const links = pages.map(({ name, address }) => link(name, address));
    byId("missing-nearest").replaceChildren(...(links.length > 0 ? links : [link("Fleet", "/")]));
  }
}

/**
 * Links to the nodes whose host names are nearest to this one; none where the hub does not answer.
 * @type {(name: string) => Promise<HTMLElement[]>}
 */
export async function nearestNodes(name) {
  const nodes = await lookAtAll("nodes").catch(() => []);
  return nearest(name, nodes, ({ host }) => host).map(({ host }) => link(host, nodeAddress(host)));
}

/** @type {(name: string) => string} */
export const nodeAddress = (name) => `/node/${encodeURIComponent(name)}`;
/** @type {(name: string, place: string) => string} */
export const gpuAddress = (name, place) =>
  `/gpu/${encodeURIComponent(name)}/${encodeURIComponent(place)}`;

/** @type {(words: string, href: string, more?: Child) => HTMLElement} */
export const link = (words, href, more = "") => make("li", {}, make("a", { href }, words), more);

/**
 * Returns the items within half of its length by edits, or that begin alike; the nearest first.
 * @type {<I>(wanted: string, items: I[], nameOf: (item: I) => string) => I[]}
 */
export function nearest(wanted, items, nameOf) {
  const word = wanted.toLowerCase();
  const near = items
    .map((item) => {
      const name = nameOf(item).toLowerCase();
      return {
        item,
        away:
          name.length > 1 && (name.startsWith(word) || word.startsWith(name))
            ? 0
            : edits(word, name),
      };
    })
    .filter(({ away }) => away <= word.length / 2);
  return near
    .sort((one, other) => one.away - other.away)
    .slice(0, MOST)
    .map(({ item }) => item);
}

/**
 * Levenshtein's distance.
 * @type {(one: string, other: string) => number}
 */
function edits(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++)
      next.push(
        Math.min(next[j - 1] + 1, row[j] + 1, row[j - 1] + (one[i - 1] === other[j - 1] ? 0 : 1)),
      );
    row = next;
  }
  return row[row.length - 1];
}
