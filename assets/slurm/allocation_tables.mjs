// Tables of what a scheduler has allocated: shared by the Slurm and the Kubernetes page.

import { make } from "../parts/dom.mjs";
import { sentence } from "../parts/dialog.mjs";

export const known = (value) => (value === null ? "–" : String(value));

export function allocationTable(name, heads, rows) {
  if (rows.length === 0) return make("p", { class: "slurm-empty" }, `${name}: none.`);
  return make("div", { class: "slurm-scroll", tabindex: "0", role: "region", "aria-label": name },
    make("table", { class: "slurm-table" },
      make("thead", {}, make("tr", {}, ...heads.map((words) => make("th", { scope: "col" }, words)))),
      make("tbody", {}, ...rows)));
}

/** A word, and in softer ink what belongs to it. */
export const softly = (words, more, tag = "span") => make("td", {}, make(tag, {}, words), more === "" ? null : make("span", { class: "slurm-name" }, ` ${more}`));

/** GPUs that no process uses; why that is not known is its tooltip. */
export const leftCell = ({ without_process: left, unknown }) => make("td", { class: left > 0 ? "slurm-left" : null, title: unknown === "" ? null : sentence(unknown) }, left === null ? "–" : make(left > 0 ? "strong" : "span", {}, String(left)));

export const nodeCell = (name, host) => make("td", {}, host === null ? name : make("a", { href: `/node/${encodeURIComponent(host)}` }, name));
