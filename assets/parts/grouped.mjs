// Items by a key of theirs, in the order in which they come; `Map.groupBy` is not in all browsers yet.

export function grouped(items, keyOf) {
  const found = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(item);
  }
  return found;
}
