// Where the page begins: the socket opens at once, the parts are mounted when Dash has drawn them.

import { ActsStore } from "./acts_store.mjs";
import { mountActs } from "./acts.mjs";
import { Fleet } from "./fleet.mjs";
import { Holds } from "./holds.mjs";
import { Live } from "./live.mjs";
import { Record } from "./record.mjs";
import { Settings } from "./settings.mjs";
import { mountShell } from "./shell.mjs";
import { Tasks } from "./tasks.mjs";
import { Tray } from "./tray.mjs";

const PAGES = {
  "/tasks": { id: "tasks", build: (root, store, holds) => new Tasks(root, live, store, holds) },
  "/record": { id: "record", build: (root) => new Record(root, live) },
  "/settings": { id: "settings", build: (root, _store, holds) => new Settings(root, live, holds) },
  "/": { id: "fleet", build: (root, _store, holds) => (fleet = new Fleet(root, live, holds)) },
};
const path = location.pathname in PAGES ? location.pathname : "/";
const page = PAGES[path];
const live = new Live({ isIdle: page.id !== "fleet" });
const longTasks = { count: 0, longest_ms: 0 };
let fleet = null;

function mount() {
  const root = document.getElementById(page.id);
  if (root === null) return;
  seen.disconnect();
  root.hidden = false;
  document.querySelector(`.bar nav a[href="${path}"]`).setAttribute("aria-current", "page");
  mountShell(live);
  const store = new ActsStore(live);
  mountActs(store);
  new Tray(store);
  page.build(root, store, new Holds(live));
}

const seen = new MutationObserver(mount);
seen.observe(document.body, { childList: true, subtree: true });
mount();

if (PerformanceObserver.supportedEntryTypes.includes("longtask")) {
  new PerformanceObserver((list) => list.getEntries().forEach(({ duration }) => {
    longTasks.count += 1;
    longTasks.longest_ms = Math.max(longTasks.longest_ms, duration);
  })).observe({ type: "longtask" });
}

// Read only, described in docs/internals/live.md: what is drawn, and what drawing costs.
globalThis.gpudeck = Object.freeze({
  cell: (uuid) => fleet?.cell(uuid) ?? null,
  get stats() {
    return { ...fleet?.heatmap?.stats, long_tasks: longTasks.count, longest_task_ms: longTasks.longest_ms, link: live.state };
  },
});
