// The hub's own API. Answers to `get` are kept for a second, so that a pointer crossing a hundred
// cells and an open drawer ask once; and nothing is asked again while a slow hub has not answered it,
// unless the answer is late. `look` always asks.

const KEEP_MS = 1_000;
export const LATE_MS = 40_000;
const MOST_PAGES = 20;
const AGAIN_AFTER_MS = 500;
/** @type {Map<string, { until: number, answer: Promise<any> }>} */
const recent = new Map();

export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {Partial<Hub.ProblemDetails>} problem
   */
  constructor(status, { detail, title, type } = {}) {
    super(
      detail ??
        title ??
        (status === 0 ? "The hub is not responding." : `The hub answered ${status}.`),
    );
    this.status = status;
    this.type = type ?? "about:blank";
  }
}

const NAMES = { gpus: ["uuid", "GPU"], nodes: ["id", "node"], tasks: ["id", "task"] };

/**
 * Reads the things of these ids that exist, in their order. They are asked for as a list, which leaves
 * out what is gone: its own path would answer 404, and the browser log that as a fault of the page.
 * @type {<K extends keyof Listed>(kind: K, ids: string[], ask?: (path: string) => Promise<any>) =>
 *   Promise<Listed[K][]>}
 */
export async function several(kind, ids, ask = look) {
  if (ids.length === 0) return [];
  const [name] = NAMES[kind];
  const { items } = await ask(
    `${kind}?${new URLSearchParams([...ids.map((id) => [name, id]), ["limit", "100"]])}`,
  );
  // A node goes by its host name, too.
  /** @type {(is: (item: any) => boolean) => any} */
  const first = (is) => items.find(is);
  const isHost = kind === "nodes";
  return ids
    .map((id) => first((item) => item[name] === id) ?? first(({ host }) => isHost && host === id))
    .filter((item) => item !== undefined);
}

/**
 * @type {<K extends keyof Listed>(kind: K, id: string, ask?: (path: string) => Promise<any>) =>
 *   Promise<Listed[K]>}
 */
export async function single(kind, id, ask = look) {
  const [item] = await several(kind, [id], ask);
  if (item === undefined)
    throw new ApiError(404, { detail: `there is no such ${NAMES[kind][1]} here` });
  return item;
}

/** @type {(query: Record<string, string>) => Promise<Hub.EventList>} */
export const getEvents = (query) => get(`events?${new URLSearchParams(query)}`);

/** @type {<P extends string>(path: P) => Promise<Hub.Answer<`GET ${P}`>>} */
export function get(path) {
  const now = performance.now();
  for (const [key, { until }] of recent) if (now > until) recent.delete(key);
  const last = recent.get(path);
  if (last !== undefined) return last.answer;
  const answer = /** @type {Promise<any>} */ (look(path));
  const request = { until: now + LATE_MS, answer };
  recent.set(path, request);
  answer.then(
    () => (request.until = now + KEEP_MS),
    () => (request.until = -Infinity),
  );
  return answer;
}

/** Forgets all that was asked: a hub that went away may never answer it. */
export const forgetAsked = () => recent.clear();

/** @type {<P extends string>(path: P) => Promise<Hub.Answer<`GET ${P}`>>} */
export const look = (path) => ask("GET", path);

/**
 * Reads the first page of a list; `otherwise`: where the hub does not answer.
 * @type {<P extends string, O = null>(path: P, otherwise?: O, ask?: (path: string) => Promise<any>) =>
 *   Promise<ItemsOf<P> | O>}
 */
export const itemsOf = (path, otherwise = /** @type {any} */ (null), ask = look) =>
  ask(path).then(
    ({ items }) => items,
    () => otherwise,
  );

/**
 * Reads all items of a list, page after page.
 * @type {<P extends string>(path: P, more?: string, ask?: (path: string) => Promise<any>) =>
 *   Promise<ItemsOf<P>>}
 */
export async function lookAtAll(path, more = "", ask = look) {
  /** @type {any} */
  const items = [];
  let cursor = "";
  for (let page = 0; page < MOST_PAGES; page++) {
    const answer = await ask(`${path}?limit=1000${more}${cursor}`);
    items.push(...answer.items);
    if ((answer.next ?? null) === null) break;
    cursor = `&cursor=${encodeURIComponent(answer.next)}`;
  }
  return items;
}

/**
 * Sends a change, with the proof that the page could read its own cookie. A POST whose answer was lost is
 * sent once more, under a key by which the hub does it once.
 * @type {<M extends Method, P extends string>(method: M, path: P, body?: unknown,
 *   more?: HeadersOf) => Promise<Hub.Answer<`${M} ${P}`>>}
 */
export async function send(method, path, body, more = {}) {
  /** @type {HeadersOf} */
  const headers = { "X-CSRFToken": csrfToken(), ...more };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "POST") return ask(method, path, body, headers);
  headers["Idempotency-Key"] = newKey();
  try {
    return await ask(method, path, body, headers);
  } catch (lost) {
    if (!(lost instanceof ApiError) || lost.status !== 0) throw lost;
    await new Promise((done) => setTimeout(done, AGAIN_AFTER_MS));
    // What the second is refused for, such as a preview that served, says nothing of the first.
    return ask(method, path, body, headers).catch(() => {
      throw lost;
    });
  }
}

// Not `randomUUID`: a page that comes without TLS has none.
function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}

/** @type {() => string} */
export function csrfToken() {
  const config = document.getElementById("_dash-config")?.textContent ?? "{}";
  const { csrf_token_name: name } = JSON.parse(config);
  return (
    document.cookie
      .split("; ")
      .find((cookie) => cookie.startsWith(`${name}=`))
      ?.slice(name.length + 1) ?? ""
  );
}

/** @type {(method: string, path: string, body?: unknown, headers?: HeadersOf) => Promise<any>} */
async function ask(method, path, body, headers = {}) {
  /** @type {RequestInit} */
  const options = {
    method,
    credentials: "same-origin",
    cache: "no-cache",
    headers: { Accept: "application/json", ...headers },
  };
  if (body !== undefined) options.body = JSON.stringify(body);
  const response = await fetch(`/api/v1/${path}`, options).catch(() => {
    throw new ApiError(0);
  });
  if (!response.ok) throw new ApiError(response.status, await response.json().catch(() => ({})));
  return response.status === 204 ? null : response.json();
}
