// Words about all boards of a node together: the limits in force, and their health. Pure.

import { amount } from "../parts/format.mjs";
import { grouped } from "../parts/grouped.mjs";

/**
 * [[label, words]]: one value where all have it, else who differs from most.
 * @type {(gpus: Hub.GpuView[]) => LabelledWords[]}
 */
export function limitLines(gpus) {
  return [
    [
      "Power limit",
      agreed(gpus, ({ values, facts }) => {
        const watts = values.power_limit_w ?? facts.power_limit_w;
        if (watts === null || watts === undefined) return null;
        return `${Math.round(watts)} W${watts === facts.power_limit_default_w ? ", default" : ""}`;
      }),
    ],
  ];
}

/** @type {(gpus: Hub.GpuView[]) => LabelledWords[]} */
export function healthLines(gpus) {
  const uncorrected = sumOf(gpus, "ecc_uncorrected");
  return [
    [
      "ECC, all GPUs",
      uncorrected === null ? whyNot(gpus, "ecc_uncorrected") : `${amount(uncorrected)} uncorrected`,
    ],
    [
      "NVLink",
      agreed(gpus, ({ values }) =>
        values.nvlinks_up === undefined ? null : `${amount(values.nvlinks_up)} up`,
      ) ?? whyNot(gpus, "nvlinks_up"),
    ],
  ];
}

/**
 * null: none of them says.
 * @type {(gpus: Hub.GpuView[], wordsOf: (gpu: Hub.GpuView) => string | null) => string | null}
 */
function agreed(gpus, wordsOf) {
  const by = grouped(gpus, wordsOf);
  by.delete(null);
  const [most, ...others] = [...by].sort(([, one], [, other]) => other.length - one.length);
  if (most === undefined) return null;
  return [
    ...others.map(
      ([words, those]) => `GPU ${those.map(({ place }) => place).join(", ")}: ${words}`,
    ),
    others.length === 0 ? most[0] : `the others ${most[0]}`,
  ].join("; ");
}

/** @type {(gpus: Hub.GpuView[], key: string) => number | null} */
function sumOf(gpus, key) {
  const numbers = gpus
    .map(({ values }) => values[key])
    .filter((value) => value !== undefined && value !== null);
  return numbers.length === 0 ? null : numbers.reduce((sum, value) => sum + value, 0);
}

/** @type {(gpus: Hub.GpuView[], key: string) => string} */
const whyNot = (gpus, key) => gpus.map(({ missing }) => missing[key]).find(Boolean) ?? "unknown";
