// Catalogue of the hub's metrics: keys, labels, units, reasons of absence. One for all pages.

import { tableOf } from "./dom.mjs";

/**
 * `columns`: of a Frame, in its order.
 * @type {() => MetricBook}
 */
export function readMetricCatalogue() {
  /** @type {MetricTable} */
  const book = tableOf("metric-table");
  return { ...book, metrics: new Map(book.metrics.map((metric) => [metric.key, metric])) };
}

/** @type {(book: Pick<MetricBook, "metrics">, key: string) => Metric} */
export function metricOf({ metrics }, key) {
  const metric = metrics.get(key);
  if (metric === undefined) throw new Error(`there is no metric ${key}`);
  return metric;
}
