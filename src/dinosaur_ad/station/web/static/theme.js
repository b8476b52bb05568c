// Light or dark as the person chose, before anything is drawn; without a choice the system decides.
"use strict";
(() => {
  const chosen = localStorage.getItem("dinosaur-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
