// The line of what is selected on the map: how many GPUs, their average, and the way to compare them.

/** @import { FleetState } from "../live/fleet_state.mjs" */

import { byId, say, show } from "../parts/dom.mjs";
import { amount, plural } from "../parts/format.mjs";

const MOST_COMPARED = 16;

/** @type {(selected: Set<number>, picture: FleetState, metric: Metric) => void} */
export function drawSelection(selected, picture, metric) {
  drawCompare(selected, picture);
  say(
    byId("selection"),
    selected.size === 0
      ? ""
      : `${plural(selected.size, "GPU")} selected${averageWords(selected, picture, metric)} · Esc clears`,
  );
}

/** @type {(selected: Set<number>, picture: FleetState) => void} */
function drawCompare(selected, picture) {
  const compared = [...selected].slice(0, MOST_COMPARED);
  show(byId("compare"), selected.size > 1);
  byId("compare").setAttribute(
    "href",
    `/compare?${new URLSearchParams(compared.map((slot) => ["gpu", picture.uuids[slot]]))}`,
  );
  say(
    byId("compare"),
    selected.size > MOST_COMPARED ? `Compare the first ${MOST_COMPARED}` : "Compare",
  );
}

/**
 * " · average Utilization 41 %"; "" where no selected GPU has a number.
 * @type {(selected: Set<number>, picture: FleetState, metric: Metric) => string}
 */
function averageWords(selected, picture, metric) {
  const values = [...selected]
    .filter((slot) => picture.code(slot) < 249)
    .map((slot) => picture.exact?.[slot] ?? (picture.code(slot) / 239) * 100);
  if (values.length === 0) return "";
  const unit = picture.exact === null || metric.key === "mem_used_bytes" ? "%" : metric.unit;
  const average = values.reduce((sum, value) => sum + value, 0) / values.length;
  return ` · average ${metric.label} ${amount(average)} ${unit}`;
}
