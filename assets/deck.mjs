// Where the page begins: the socket opens at once, the parts are mounted when Dash has drawn them.

import { CommandStore } from "./actions/commands_store.mjs";
import { mountActions } from "./actions/actions.mjs";
import { settle } from "./parts/dom.mjs";
import { Holds } from "./actions/holds.mjs";
import { Live } from "./live/live.mjs";
import { mountShell } from "./parts/shell.mjs";
import { nameTab, tabLink } from "./parts/tab.mjs";
import { RunningActions } from "./actions/running_actions.mjs";

// Each page's own modules come when it is that page: the others' would only stand in its way.
const PAGES = {
  "/tasks": { id: "tasks", name: "Tasks", come: () => import("./tasks/tasks.mjs"), build: ({ Tasks }, root, store, holds) => new Tasks(root, live, store, holds) },
  "/alerts": { id: "alerts", name: "Alerts", come: () => import("./alerts/alerts.mjs"), build: ({ AlertsPage }, root) => new AlertsPage(root, live) },
  "/quotas": { id: "quotas", name: "Quotas", come: () => import("./quotas/quotas.mjs"), build: ({ QuotasPage }, root) => new QuotasPage(root, live) },
  "/history": { id: "history", name: "History", come: () => import("./history/history.mjs"), build: ({ History }, root) => { lines = new History(root, live); } },
  "/reports": { id: "reports", name: "Reports", come: () => import("./reports/reports.mjs"), build: ({ Reports }, root) => new Reports(root, live) },
  "/record": { id: "record", name: "Record", come: () => import("./audit/audit_log.mjs"), build: ({ Record }, root) => new Record(root, live) },
  "/settings": { id: "settings", name: "Settings", come: () => import("./settings/settings.mjs"), build: ({ Settings }, root, _store, holds) => new Settings(root, live, holds) },
  "/": { id: "fleet", name: "Fleet", come: () => import("./fleet/fleet.mjs"), build: ({ Fleet }, root, _store, holds) => { fleet = new Fleet(root, live, holds); } },
};
const LINES = { id: "lines", name: "Timelines", come: () => import("./charts/timelines.mjs"), build: ({ Timelines }, root, _store, holds) => { lines = new Timelines(root, live, holds); } };
// They say themselves when they stand, and are shown at the latest then.
const SETTLES = new Set(["history", "reports", "lines"]);
const SETTLE_MS = 2_500;
const isLines = /^\/(?:gpu|node)\/[^/]+$|^\/compare$/.test(location.pathname);
const path = !isLines && location.pathname in PAGES ? location.pathname : "/";
const page = isLines ? LINES : PAGES[path];
const coming = page.come();
const live = new Live({ isIdle: !["fleet", "lines"].includes(page.id) });
const longTasks = { count: 0, longest_ms: 0 };
let fleet = null;
let lines = null;

function mount() {
  const root = document.getElementById(page.id);
  if (root === null) return;
  seen.disconnect();
  root.hidden = false;
  if (SETTLES.has(page.id)) { root.dataset.unsettled = ""; setTimeout(() => settle(root), SETTLE_MS); }
  const here = document.querySelector(`.bar nav a[href="${path}"]`);
  here.setAttribute("aria-current", "page");
  here.scrollIntoView({ block: "nearest", inline: "nearest" });
  nameTab(page.name);
  live.addEventListener("state", () => tabLink(live.state));
  mountShell(live);
  const store = new CommandStore(live);
  mountActions(store);
  new RunningActions(store);
  const holds = new Holds(live);
  coming.then((module) => page.build(module, root, store, holds));
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
  line: (uuid, key) => lines?.line(uuid, key) ?? null,
  get stats() {
    return { ...fleet?.heatmap?.stats, long_tasks: longTasks.count, longest_task_ms: longTasks.longest_ms, link: live.state, at: fleet?.past?.shown ?? null };
  },
});
