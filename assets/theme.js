// Blocks in the head for a moment, so that nothing is painted in the wrong theme.
(function () {
  let choice = null;
  try {
    choice = localStorage.getItem("gpudeck.theme");
  } catch {
    /* storage may be forbidden */
  }
  if (choice === "dark" || choice === "light") document.documentElement.dataset.theme = choice;
})();
