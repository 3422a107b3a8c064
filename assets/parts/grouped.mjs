// Items by a key of theirs, in the order in which they come; `Map.groupBy` is not in all browsers yet.

/** @type {<I, K>(items: Iterable<I>, keyOf: (item: I) => K) => Map<K, I[]>} */
export function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return groups;
}
