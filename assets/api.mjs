// GET from the hub's own API, with answers kept for a second so that a pointer crossing a hundred
// cells and an open drawer ask once.

const KEEP_MS = 1_000;
const kept = new Map();

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function getGpu(uuid) {
  return get(`/api/v1/gpus/${encodeURIComponent(uuid)}`);
}

export function getNodes() {
  return get("/api/v1/nodes?limit=100");
}

export function getTask(id) {
  return get(`/api/v1/tasks/${encodeURIComponent(id)}`);
}

function get(path) {
  const now = performance.now();
  for (const [key, { at }] of kept) if (now - at > KEEP_MS) kept.delete(key);
  if (!kept.has(path)) {
    const answer = ask(path);
    answer.catch(() => kept.delete(path));
    kept.set(path, { at: now, answer });
  }
  return kept.get(path).answer;
}

async function ask(path) {
  const response = await fetch(path, { credentials: "same-origin", headers: { Accept: "application/json" } });
  if (!response.ok) throw new ApiError(response.status, await problemOf(response));
  return response.json();
}

async function problemOf(response) {
  const problem = await response.json().catch(() => ({}));
  return problem.detail ?? problem.title ?? `the hub answered ${response.status}`;
}
