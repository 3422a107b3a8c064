// What fires at other sites, where this hub views them: to read, and the way to who can act on it.

import { itemsOf, get } from "../parts/api.mjs";
import { Lines, byId, make, say, sayOrHide, show } from "../parts/dom.mjs";
import { age, secondsSince } from "../parts/format.mjs";

const TONES = { crit: "critical", warn: "warning", info: "info" };

export class SiteAlerts {
  constructor() {
    const body = make("tbody", {});
    const heads = ["Site", "Alert", "Where", "Since", ""].map((words) => make("th", { scope: "col" }, words));
    this.table = make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body);
    this.lines = new Lines(body, ({ site, id }) => `${site} ${id}`, () => line());
    byId("alerts-sites").append(this.table);
  }

  /** Whether there are sites is known once; where there are none, nothing is asked again. */
  async look() {
    this.isAny ??= ((await itemsOf("sites")) ?? []).length > 0;
    show(byId("alerts-sites").closest("section"), this.isAny);
    if (!this.isAny) return;
    const found = await get("sites/alerts").catch(() => null);
    if (found === null) return;
    this.lines.draw(found.items);
    show(this.table, found.items.length > 0);
    sayOrHide(byId("alerts-sites-words"), wordsOf(found));
  }
}

function wordsOf({ items, unknown }) {
  const none = items.length === 0 && unknown.length === 0 ? "No alert is firing at another site." : "";
  return unknown.length === 0 ? none : `Alerts of ${unknown.join(", ")}: unknown.`;
}

function line() {
  const cells = Array.from({ length: 4 }, () => make("td", {}));
  const way = make("a", { class: "button small" });
  const draw = (alert) => {
    const where = [alert.host, alert.place === "" ? "" : `GPU ${alert.place}`].filter(Boolean).join(" · ");
    [alert.site, `${alert.title}`, where, `${age(secondsSince(alert.since))}`].forEach((words, at) => say(cells[at], words));
    cells[1].className = TONES[alert.severity];
    say(way, `Open at ${alert.site}`);
    way.href = alert.link;
  };
  return { root: make("tr", {}, ...cells, make("td", {}, way)), draw };
}
