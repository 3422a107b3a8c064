// What the hub says of its metrics: keys, labels, units, reasons of absence. One for all pages.

import { byId } from "./dom.mjs";

export function readMetricCatalogue() {
  const { metrics, sections, reasons, absence, absences, columns } = byId("fleet").dataset;
  return {
    metrics: new Map(JSON.parse(metrics).map((metric) => [metric.key, metric])),
    sections: JSON.parse(sections), reasons: JSON.parse(reasons), absence: JSON.parse(absence), absenceWords: JSON.parse(absences),
    columns: JSON.parse(columns), // of a Frame, in its order
  };
}
