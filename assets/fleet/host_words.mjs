// Load of a node's host now, in lines of label and words.

import { amount, bytesWords, oneWord, perSecond, plural } from "../parts/format.mjs";

/** @type {(value: number, digits?: number) => string} */
const percent = (value, digits = 0) => `${amount(value, digits)} %`;
/** @type {(value: number) => string} */
const rate = (value) => oneWord(perSecond(value));

/**
 * `load`: of the API; null: the agent does not say.
 * @type {(load: Hub.HostLoadView | null) => LabelledWords[]}
 */
export function hostFacts(load) {
  if (load === null) return [["Load", "not reported by this agent, or too long ago"]];
  const { numbers: of, missing } = load;
  /** @type {(label: string, keys: string[], words: () => string) => LabelledWords} */
  const line = (label, keys, words) => [
    label,
    keys.every((key) => key in of)
      ? words()
      : (keys.map((key) => missing[key]).find(Boolean) ?? "unknown"),
  ];
  return [
    line(
      "CPU",
      ["cpu_pct", "cpus", "load_1m"],
      () =>
        `${percent(of.cpu_pct)} of ${plural(of.cpus, "processor")}, load ${amount(of.load_1m, 1)}`,
    ),
    line(
      "RAM",
      ["mem_used_bytes", "mem_total_bytes"],
      () =>
        `${bytesWords(of.mem_used_bytes)} of ${bytesWords(of.mem_total_bytes)}${of.swap_used_bytes > 0 ? `, swap ${bytesWords(of.swap_used_bytes)}` : ""}`,
    ),
    line(
      "Pressure",
      ["cpu_pressure_pct", "mem_pressure_pct", "io_pressure_pct"],
      () =>
        `CPU ${percent(of.cpu_pressure_pct)}, memory ${percent(of.mem_pressure_pct)}, disk ${percent(of.io_pressure_pct)}`,
    ),
    line(
      "Disks",
      ["disk_read_bytes_per_s", "disk_write_bytes_per_s", "disk_busy_pct"],
      () =>
        `read ${rate(of.disk_read_bytes_per_s)}, written ${rate(of.disk_write_bytes_per_s)}, busiest ${percent(of.disk_busy_pct)}`,
    ),
    line("File systems", ["disk_full_pct"], () => `fullest ${percent(of.disk_full_pct)}`),
    line(
      "Network",
      ["net_rx_bytes_per_s", "net_tx_bytes_per_s"],
      () => `received ${rate(of.net_rx_bytes_per_s)}, sent ${rate(of.net_tx_bytes_per_s)}`,
    ),
    line(
      "InfiniBand",
      ["rdma_rx_bytes_per_s", "rdma_tx_bytes_per_s"],
      () =>
        `received ${rate(of.rdma_rx_bytes_per_s)}, sent ${rate(of.rdma_tx_bytes_per_s)}${of.rdma_link_downs > 0 ? `, ${plural(of.rdma_link_downs, "link failure")}` : ""}`,
    ),
    line(
      "Blocked",
      ["threads_blocked"],
      () => `${plural(of.threads_blocked, "process", "processes")} waiting for a disk`,
    ),
  ];
}
