// Blocks in the head for a moment, so that nothing is painted in the wrong theme.
(function () {
  let kept = null;
  try { kept = localStorage.getItem("gpudeck.theme"); } catch { /* storage may be forbidden */ }
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
})();
