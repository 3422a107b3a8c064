// What the hub says of its metrics: keys, labels, units, reasons of absence. One for all pages.

import { byId } from "./dom.mjs";

export function readBook() {
  const { metrics, reasons, absence, absences } = byId("fleet").dataset;
  return {
    metrics: new Map(JSON.parse(metrics).map((metric) => [metric.key, metric])),
    reasons: JSON.parse(reasons), absence: JSON.parse(absence), absenceWords: JSON.parse(absences),
  };
}
