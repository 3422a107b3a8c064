// Trouble of a GPU among others, for the tiles of a node and the lines of its charts. Pure.

import { age } from "../parts/format.mjs";
import { stateWords } from "../fleet/gpu_words.mjs";

const FAULTY = new Set(["lost", "error"]);

/**
 * Returns by UUID {tone, note, since, why}: `critical` of one that is lost, that reports an error, or at
 * which a critical alert fires; else `waste` of one that is idle with memory held. `alerts`: spans
 * of firing.mjs; `at`: the moment that is looked at.
 * @type {(gpus: ShownGpu[], alerts: AlertSpan[], at: number) => Map<string, GpuTrouble>}
 */
export function troubleOf(gpus, alerts, at) {
  const firing = alerts.filter(
    ({ severity, isSilenced, from, to }) =>
      severity === "crit" && !isSilenced && from <= at && (to === null || to > at),
  );
  return new Map(
    gpus.flatMap((gpu) => {
      const trouble = troubleAt(
        gpu,
        firing.filter(({ uuids }) => uuids.includes(gpu.uuid)),
      );
      return trouble === null ? [] : [[gpu.uuid, trouble]];
    }),
  );
}

/**
 * @type {(gpu: { state: string, wasted_s?: number | null }, alerts: AlertSpan[]) => GpuTrouble |
 *   null}
 */
function troubleAt({ state, wasted_s: idleS }, alerts) {
  const why = [...new Set(alerts.map(({ title }) => title))].join("\n");
  if (FAULTY.has(state)) return { tone: "critical", note: stateWords(state), since: "", why };
  if (alerts.length > 0) return { tone: "critical", note: "critical", since: "", why };
  return idleS === undefined
    ? null
    : { tone: "waste", note: "idle", since: age(idleS), why: `Under 5 % busy for ${age(idleS)}` };
}
