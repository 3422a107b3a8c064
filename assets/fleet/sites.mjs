// Other sites, where this hub views them: a line above the map, and where one answers itself.

import { Lines, byId, make, say, show } from "../parts/dom.mjs";
import { clock, plural } from "../parts/format.mjs";

/**
 * "away since 14:03"; "" where it is heard.
 * @type {(site: Pick<Hub.SiteCounts, "state" | "since"> | undefined) => string}
 */
export const awayWords = (site) =>
  site?.state === "away" ? `away since ${clock(site.since ?? NaN)}` : "";

/**
 * Returns the site's own addresses of this GPU and its node: the names here have the site's name
 * before them.
 * @type {(thing: { link: string, uuid: string, node: string }) => { gpu: string, node: string }}
 */
export function waysThere({ link, uuid, node }) {
  const { origin } = new URL(link);
  /** @type {(id: string) => string} */
  const own = (id) => encodeURIComponent(id.slice(id.indexOf(":") + 1));
  return { gpu: `${origin}/gpu/${own(uuid)}`, node: `${origin}/node/${own(node)}` };
}

export class SitesLine {
  states = ""; // of all sites, as they were drawn

  constructor() {
    this.place = byId("sites");
    /** @type {Lines<Hub.SiteCounts>} */
    this.lines = new Lines(
      this.place,
      ({ name }) => name,
      () => line(),
    );
  }

  /**
   * Draws the sites; returns whether one came, left or changed its state.
   * @type {(sites: Hub.SiteCounts[]) => boolean}
   */
  draw(sites) {
    show(this.place, sites.length > 0);
    this.lines.draw(sites);
    const states = sites.map(({ name, state, since }) => `${name} ${state} ${since}`).join();
    const isNew = states !== this.states;
    this.states = states;
    return isNew;
  }
}

/** @type {() => DrawnLine<Hub.SiteCounts>} */
function line() {
  const name = make("button", { type: "button", class: "chip" });
  const words = make("span", {});
  const way = make("a", { class: "site-way" });
  /** @type {(site: Hub.SiteCounts) => void} */
  const draw = (site) => {
    say(name, site.name);
    name.dataset.seek = `site:${site.name}`;
    root.dataset.state = site.state;
    say(words, wordsOf(site));
    say(way, "Open");
    way.href = site.url;
    way.setAttribute("aria-label", `Open ${site.name}`);
  };
  const root = make("li", {}, name, words, way);
  return { root, draw };
}

/** @type {(site: Hub.SiteCounts) => string} */
function wordsOf(site) {
  if (site.state === "away") return `${awayWords(site)}: ${site.why}`;
  if (site.state === "connecting") return "connecting …";
  const left = site.left_out > 0 ? `, ${plural(site.left_out, "GPU")} more not shown` : "";
  return `${plural(site.nodes, "node")}, ${plural(site.gpus, "GPU")}${left}`;
}
