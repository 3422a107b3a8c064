// What is looked at lives in the address, so that it can be sent to somebody.

/** `usual`: {name: value} of all that is chosen; `allowed`: {name: [value]} where not everything is. */
export function readView(usual, allowed = {}) {
  const given = new URLSearchParams(location.search);
  const isRight = (name) => given.has(name) && (allowed[name]?.includes(given.get(name)) ?? true);
  return Object.fromEntries(Object.entries(usual).map(([name, value]) => [name, isRight(name) ? given.get(name) : value]));
}

/** What is not as usual, and `more` after it: [[name, value]]. */
export function writeView(view, usual, more = []) {
  const unusual = Object.keys(usual).filter((name) => view[name] !== usual[name]).map((name) => [name, view[name]]);
  writeQuery(new URLSearchParams([...unusual, ...more]));
}

export function writeQuery(query) {
  const text = query.toString();
  history.replaceState(history.state, "", text === "" ? location.pathname : `${location.pathname}?${text}`);
}

// Back from a GPU or a Node, the Fleet page is as it was left.
const KEPT = "gpudeck.fleet";

export function keepFleetAddress() {
  try { sessionStorage.setItem(KEPT, location.pathname + location.search); } catch { /* then it begins anew */ }
}

export function fleetAddress() {
  try { return sessionStorage.getItem(KEPT) ?? "/"; } catch { return "/"; }
}
