// The table of pages (dashboard/pages/__init__.py), as it came with the page; the last is where one
// is at an address of none.

export const PAGES = JSON.parse(document.getElementById("page-table").textContent);
