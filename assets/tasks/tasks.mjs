// The Tasks page: rows that are live, and beside them one task, which dashboard/pages/task_details.py writes.

/** @import { CommandStore } from "../actions/commands_store.mjs" */

import { look } from "../parts/api.mjs";
import { byId, copyText, isTyping, say, show, targetOf } from "../parts/dom.mjs";
import { FilterBox } from "../parts/filter_box.mjs";
import { toast } from "../parts/toast.mjs";
import { put } from "../reading/patch.mjs";
import ReadPage from "../reading/read_page.mjs";
import { showView } from "../reading/view_controls.mjs";
import { TaskRows } from "./task_rows.mjs";

const FILTER_WAIT_MS = 250;
const MOST_OPEN = 100;

// It states no fields: `listen` sets them, and is called before a field would be set.
export default class Tasks extends ReadPage {
  /** @type {(store: CommandStore) => void} */
  listen(store) {
    super.listen(store);
    const rows = new TaskRows(this, store);
    this.rows = rows;
    this.drawer = byId("task-drawer");
    this.filter = new FilterBox(
      this.root,
      "tasks-filter",
      {
        popover: "tasks-popover",
        words: "tasks-words",
        placeholder: "user:alice & mem>50%",
        waitMs: FILTER_WAIT_MS,
      },
      (filter) => this.choose({ filter }),
    );
    this.filter.field.value = this.view.filter;
    rows.addEventListener("wrong", ({ detail }) => this.filter?.markWrong(detail));
    rows.table.addEventListener("sort", ({ detail: { sort, first } }) =>
      this.choose({
        sort,
        order: this.view.sort !== sort ? first : this.view.order === "asc" ? "desc" : "asc",
      }),
    );
    rows.table.addEventListener("toggle", ({ detail: { key } }) => this.toggleGroup(key));
    rows.table.addEventListener("open", ({ detail: { task, isFocused } }) => {
      this.choose({ task: task.id });
      if (isFocused) this.drawer?.focus({ preventScroll: true });
    });
    byId("task-close").addEventListener("click", () => this.close());
    byId("task-copy").addEventListener("click", async () =>
      toast((await copyText(location.href)) ? "Link copied" : "Copy link to this page"),
    );
    document.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("popstate", () => this.follow());
    for (const name of /** @type {const} */ (["slurm", "kubernetes"]))
      look(name).then(
        ({ items, ignored }) => show(byId(`tasks-${name}`), items.length + ignored.length > 0),
        () => {},
      );
    showView(this.root, this.view);
    this.drawDrawer();
  }

  /** True while there is a task at the side: the hub is asked for nothing else here. */
  get isSeen() {
    return super.isSeen && this.view.task !== "";
  }

  /** @type {(answer: ReadAnswer) => void} */
  take(answer) {
    if (this.view.task === "") return; // it was closed meanwhile
    super.take(answer);
    if (this.view.task === "") this.drawDrawer(); // the hub knows no such task
  }

  /** @type {(fields: Values) => void} */
  choose(fields) {
    const { task } = this.view;
    super.choose("group" in fields ? { ...fields, open: [] } : fields, false);
    if (this.view.task === task) this.rows?.look(true);
    else this.drawDrawer();
  }

  /** The address is another, or only what stands after its #, such as the way past the bar. */
  follow() {
    if (this.filter !== undefined && this.filter.field !== document.activeElement)
      this.filter.field.value = this.view.filter;
    showView(this.root, this.view);
    this.rows?.look(true);
    this.drawDrawer();
  }

  /** @type {(key: string) => void} */
  toggleGroup(key) {
    /** @type {string[]} */
    const open = this.view.open;
    this.choose({
      open: (open.includes(key) ? open.filter((one) => one !== key) : [...open, key]).slice(
        -MOST_OPEN,
      ),
    });
  }

  /** Clears the details of another task until the hub has answered. */
  drawDrawer() {
    if (this.view.shown !== this.view.task) {
      this.view.shown = "";
      say(byId("task-title"), "…");
      say(byId("task-subtitle"), "");
      for (const place of byId("task-body").children) put(/** @type {HTMLElement} */ (place), null);
    }
    if (this.drawer !== undefined) show(this.drawer, this.view.task !== "");
    this.rows?.draw();
  }

  close() {
    const table = this.rows?.table;
    this.choose({ task: "" });
    if (table !== undefined && table.focusKey !== null) table.focus(table.focusKey);
  }

  /** @type {(event: KeyboardEvent) => void} */
  onKey(event) {
    const { rows, filter, drawer } = this;
    if (
      rows === undefined ||
      document.querySelector("dialog[open]") !== null ||
      event.defaultPrevented
    )
      return;
    if (event.key === "Escape") {
      this.escape(event);
      return;
    }
    if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      filter?.focus();
    }
    const { table, lines } = rows;
    const isElsewhere =
      !table.body.contains(targetOf(event)) && drawer?.contains(targetOf(event)) === false;
    if (!["ArrowDown", "Home"].includes(event.key) || !isElsewhere || lines.length === 0) return;
    event.preventDefault();
    table.focus(
      table.focusKey !== null && table.at.has(table.focusKey) ? table.focusKey : lines[0].key,
    );
  }

  /** @type {(event: KeyboardEvent) => void} */
  escape({ target }) {
    const { filter, rows } = this;
    if (filter?.isOpen) filter.close();
    else if (target === filter?.field) {
      filter?.put("");
      filter?.field.blur();
    } else if (this.view.task !== "") this.close();
    else if (rows !== undefined && rows.selected.size > 0) rows.clear();
  }
}
