// The view in the page's address, so that it can be sent to somebody.

/**
 * `usual`: {name: value} of all that is chosen; `allowed`: {name: [value]} where not everything is.
 * @type {<V extends Record<string, string>>(usual: V, allowed?: Record<string,
 *   readonly string[]>) => V}
 */
export function readView(usual, allowed = {}) {
  const query = new URLSearchParams(location.search);
  /** @type {(name: string, value: string) => string} */
  const valueOf = (name, value) => {
    const one = query.get(name);
    return one !== null && (allowed[name]?.includes(one) ?? true) ? one : value;
  };
  const pairs = Object.entries(usual).map(([name, value]) => [name, valueOf(name, value)]);
  return Object.fromEntries(pairs);
}

/**
 * Writes the values that differ from the usual ones.
 * @type {(view: Record<string, string>, usual: Record<string, string>) => void}
 */
export function writeView(view, usual) {
  writeQuery(
    new URLSearchParams(
      Object.keys(usual)
        .filter((name) => view[name] !== usual[name])
        .map((name) => [name, view[name]]),
    ),
  );
}

/** @type {(query: URLSearchParams) => void} */
export function writeQuery(query) {
  const text = query.toString();
  history.replaceState(
    history.state,
    "",
    text === "" ? location.pathname : `${location.pathname}?${text}`,
  );
}

// Back from a GPU or a Node, the Fleet page is as it was left.
const KEPT = "gpudeck.fleet";

export function keepFleetAddress() {
  try {
    sessionStorage.setItem(KEPT, location.pathname + location.search);
  } catch {
    /* the default view is shown */
  }
}

export function fleetAddress() {
  try {
    return sessionStorage.getItem(KEPT) ?? "/";
  } catch {
    return "/";
  }
}
