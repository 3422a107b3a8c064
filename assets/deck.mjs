// Where the page begins: the socket opens at once, the parts are mounted when Dash has drawn them.

import { Fleet } from "./fleet.mjs";
import { Live } from "./live.mjs";
import { Settings } from "./settings.mjs";
import { mountShell } from "./shell.mjs";

const isSettings = location.pathname === "/settings";
const live = new Live({ isIdle: isSettings });
const longTasks = { count: 0, longest_ms: 0 };
let fleet = null;

function mount() {
  const root = document.getElementById(isSettings ? "settings" : "fleet");
  if (root === null) return;
  seen.disconnect();
  root.hidden = false;
  document.querySelector(`.bar nav a[href="${isSettings ? "/settings" : "/"}"]`).setAttribute("aria-current", "page");
  mountShell(live);
  if (isSettings) new Settings(root, live);
  else fleet = new Fleet(root, live);
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
