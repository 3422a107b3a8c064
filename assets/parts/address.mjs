// What is looked at lives in the address, so that it can be sent to somebody.

const DEFAULTS = { metric: "util_pct", group: "node", sort: "name", filter: "", gpu: "", view: "map", at: "" };
const ALLOWED = { group: ["node", "none", "model", "owner", "state"], sort: ["name", "high", "low"], view: ["map", "table"] };

export function readAddress(search, metrics) {
  const given = new URLSearchParams(search);
  const view = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) {
    const value = given.get(name);
    const allowed = name === "metric" ? metrics : ALLOWED[name];
    if (value !== null && (allowed === undefined || allowed.includes(value))) view[name] = value;
  }
  return view;
}

export function addressOf(view, pathname = location.pathname) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(view)) if (value !== DEFAULTS[name]) query.set(name, value);
  const text = query.toString();
  return text === "" ? pathname : `${pathname}?${text}`;
}

export function writeAddress(view) {
  history.replaceState(history.state, "", addressOf(view));
}

// Back from a Gpu or a Node, the Fleet page is as it was left.
const KEPT = "gpudeck.fleet";

export function keepFleetAddress() {
  try { sessionStorage.setItem(KEPT, location.pathname + location.search); } catch { /* then it begins anew */ }
}

export function fleetAddress() {
  try { return sessionStorage.getItem(KEPT) ?? "/"; } catch { return "/"; }
}
