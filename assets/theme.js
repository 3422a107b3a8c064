// Blocks in the head for a moment, so that nothing is painted in the wrong theme.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("gpudeck.theme"); } catch { /* storage may be forbidden */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
