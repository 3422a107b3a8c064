// Types of the Tasks page. Not served: types are for `make lint`.

/** A column, as dashboard/pages/components.py writes it. */
interface TaskColumn {
  key: string;
  head: string;
  sort: string;
  first: "asc" | "desc";
  meaning: string;
}

/** A line of the table: a task, or a group of tasks. `isGone`: it ended since the table was sorted. */
interface TaskLine {
  key: string;
  isGone?: boolean;
  task: Hub.TaskView;
}

interface GroupLine {
  key: string;
  isGone?: boolean;
  group: Hub.TaskGroup;
  isOpen: boolean;
}

type TasksLine = TaskLine | GroupLine;

/** Lines in the order in which they were read, and what is other in the newest. */
interface MergedLines {
  lines: TasksLine[];
  came: number;
  went: number;
  isMoved: boolean;
}

/** A row as it stands on the page: a cell for each column, by its key. */
interface TaskRow {
  root: HTMLElement;
  cells: Record<string, HTMLElement>;
  acts: HTMLElement;
  draw: (line: TasksLine) => void;
}

interface TableEvents {
  sort: TaskColumn;
  open: { task: Hub.TaskView; isFocused?: boolean };
  toggle: { key: string };
  select: { key: string; isRange: boolean };
}
