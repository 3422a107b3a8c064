// Entry of every page: the socket opens at once, the parts are mounted when Dash has drawn them.

import { DesktopAlerts } from "./alerts/desktop_alerts.mjs";
import { CommandStore } from "./actions/commands_store.mjs";
import { mountActions } from "./actions/actions.mjs";
import { byId } from "./parts/dom.mjs";
import { Holds } from "./actions/holds.mjs";
import { lend } from "./live/feeds.mjs";
import { Live } from "./live/live.mjs";
import { PAGES } from "./parts/pages.mjs";
import { mountShell } from "./parts/shell.mjs";
import { nameTab, tabLink } from "./parts/tab.mjs";
import { RunningActions } from "./actions/running_actions.mjs";

// Each page's own module comes when it is that page: the others' would only stand in its way.
const { pathname } = location;
const page =
  PAGES.find(
    ({ address, addresses }) =>
      address === pathname || (addresses !== null && new RegExp(addresses).test(pathname)),
  ) ?? PAGES[PAGES.length - 1];
/** @type {Promise<{ default: PageClass }>} */
const coming = import(`./${page.module}`);
const live = new Live(page);
if (page.key.startsWith("site-")) lend(live);
const longTasks = { count: 0, longest_ms: 0 };
/** @type {ShownPage | null} */
let shownPage = null;

function mount() {
  const root = byId(page.key);
  if (root === null) return;
  drawing.disconnect();
  root.hidden = false;
  const here = document.querySelector(`.bar nav a[href="${page.under}"]`);
  here?.setAttribute("aria-current", "page");
  here?.scrollIntoView({ block: "nearest", inline: "nearest" });
  nameTab(page.name);
  live.addEventListener("state", () => tabLink(live.state));
  mountShell(live);
  new DesktopAlerts(live);
  const store = new CommandStore(live);
  mountActions(store);
  new RunningActions(store);
  const holds = new Holds(live);
  coming.then(({ default: Shown }) => {
    shownPage = new Shown(root, live, holds, store);
  });
}

const drawing = new MutationObserver(mount);
drawing.observe(document.body, { childList: true, subtree: true });
mount();

if (PerformanceObserver.supportedEntryTypes.includes("longtask")) {
  new PerformanceObserver((list) =>
    list.getEntries().forEach(({ duration }) => {
      longTasks.count += 1;
      longTasks.longest_ms = Math.max(longTasks.longest_ms, duration);
    }),
  ).observe({ type: "longtask", buffered: true });
}

// Read only, described in docs/internals/live.md: what is drawn, and what drawing costs.
globalThis.gpudeck = Object.freeze({
  cell: (/** @type {string} */ uuid) => shownPage?.cell?.(uuid) ?? null,
  line: (/** @type {string} */ uuid, /** @type {string} */ key) =>
    shownPage?.line?.(uuid, key) ?? null,
  get stats() {
    return {
      ...shownPage?.heatmap?.stats,
      long_tasks: longTasks.count,
      longest_task_ms: longTasks.longest_ms,
      link: live.state,
      at: shownPage?.past?.shown ?? null,
    };
  },
});
