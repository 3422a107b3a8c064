// Facts of a past moment besides the metric on the map: owners, leases, memory, waste, free.

import { bytesOfText } from "./past_blocks.mjs";

/**
 * Converts an answer to FleetState's form, and to what the cards over the map need.
 * @type {(answer: Hub.PastMomentView) => ShownMoment}
 */
export function momentOf({
  at,
  epoch,
  names,
  owner,
  lessees,
  lessee,
  memory,
  free,
  gpus_free: gpusFree,
  wasted,
  queue,
}) {
  /** @type {<N>(text: string, Numbers: NumbersClass<N>) => N} */
  const numbers = (text, Numbers) => new Numbers(bytesOfText(text).buffer);
  const [slots, since, bytes] = [
    numbers(wasted.slots, Uint32Array),
    numbers(wasted.since, Uint32Array),
    numbers(wasted.mem, Float32Array),
  ];
  return {
    at,
    epoch,
    owners: names,
    owner: numbers(owner, Uint16Array),
    lessees,
    lessee: numbers(lessee, Uint16Array),
    memory: bytesOfText(memory),
    free: bytesOfText(free),
    wasted: new Map(
      Array.from(slots, (slot, place) => [
        slot,
        { slot, since: since[place], bytes: bytes[place] },
      ]),
    ),
    totals: {
      at,
      epoch,
      gpus: { free: gpusFree },
      wasted: { gpus: wasted.gpus, mem_bytes: wasted.mem_bytes, gpu_hours_today: null },
    },
    queue,
  };
}
