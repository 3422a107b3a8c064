// GPUs of a node in words. Pure.

const collator = new Intl.Collator("en", { numeric: true });

/**
 * "0–3, 6"
 * @type {(places: Iterable<string>) => string}
 */
export function placesWords(places) {
  /** @type {{ from: string, to: string }[]} */
  const runs = [];
  for (const place of [...places].sort(collator.compare)) {
    const last = runs.at(-1);
    if (last !== undefined && Number(place) === Number(last.to) + 1) last.to = place;
    else runs.push({ from: place, to: place });
  }
  return runs
    .map(({ from, to }) =>
      from === to ? from : `${from}${Number(to) - Number(from) === 1 ? ", " : "–"}${to}`,
    )
    .join(", ");
}
