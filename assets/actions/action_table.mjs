// The table of actions (gpudeck/contract/action_table.py), as it came with the page. The notebook's widget
// has the same rows under the same name (widget/bundle.py).

import { tableOf } from "../parts/dom.mjs";

/** @type {Map<string, Hub.ActionRow>} */
export const ROWS = new Map(
  tableOf("action-table").map((/** @type {Hub.ActionRow} */ row) => [row.id, row]),
);
