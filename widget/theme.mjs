// The theme of the notebook, as each kind of notebook marks it; else by the colour behind the widget.

/** @type {(element: HTMLElement) => boolean} */
export function isDark(element) {
  const { body, documentElement: root } = document;
  if (body.dataset.jpThemeLight !== undefined) return body.dataset.jpThemeLight === "false";
  if (body.dataset.vscodeThemeKind) return /dark|high-contrast$/.test(body.dataset.vscodeThemeKind);
  if (
    root.matches("[theme=dark]") ||
    body.matches(".dark, [data-theme=dark]") ||
    root.matches(".dark")
  )
    return true;
  for (let behind = element.parentElement; behind !== null; behind = behind.parentElement) {
    const parts =
      getComputedStyle(behind)
        .backgroundColor.match(/[\d.]+/g)
        ?.map(Number) ?? [];
    if (parts.length >= 3 && parts[3] !== 0)
      return 0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2] < 128;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches;
}
