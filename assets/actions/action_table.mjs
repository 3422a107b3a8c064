// The table of actions (gpudeck/action_table.py), as it came with the page. The notebook's widget
// has the same rows under the same name (widget/bundle.py).

export const ROWS = new Map(JSON.parse(document.getElementById("action-table").textContent).map((row) => [row.id, row]));
