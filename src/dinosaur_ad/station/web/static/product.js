// The slider of the sensitivity: the row of the table that belongs to its place, and what it says.
"use strict";
(() => {
  const slider = document.getElementById("slider");
  const says = document.querySelector("[data-slider-says]");

  function follow() {
    if (!slider) return;
    let sentence = slider.value;
    for (const row of document.querySelectorAll("[data-place]")) {
      const here = row.dataset.place === slider.value;
      row.classList.toggle("chosen", here);
      if (here) sentence = `${slider.value}: ${row.dataset.says}`;
    }
    says.textContent = sentence;
  }
  if (slider) {
    slider.addEventListener("input", follow);
    document.body.addEventListener("htmx:afterSettle", follow);
    document.addEventListener("click", (event) => {
      const row = event.target.closest("[data-place]");
      if (row && !slider.disabled) { slider.value = row.dataset.place; follow(); }
    });
    follow();
  }
  // Settings, changes and the gallery are of the page: show it anew once a job has ended.
  document.body.addEventListener("station-job-ended", () => location.reload());
})();
