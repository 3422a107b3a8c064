// The table of pages (dashboard/pages/__init__.py), as it came with the page; the last is where one
// is at an address of none.

import { tableOf } from "./dom.mjs";

/** @type {PageRow[]} */
export const PAGES = tableOf("page-table");
