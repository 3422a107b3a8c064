// What the hub says of its metrics: keys, labels, units, reasons of absence. One for all pages.

import { byId } from "./dom.mjs";

/** `columns`: of a Frame, in its order. */
export function readMetricCatalogue() {
  const book = JSON.parse(byId("metric-table").textContent);
  return { ...book, metrics: new Map(book.metrics.map((metric) => [metric.key, metric])) };
}
