// The picture of a part: zoom by wheel, buttons, keys and two fingers; layers on and off; answers by the keys 1 to 4.
"use strict";
(() => {
  const viewer = document.querySelector("[data-viewer]");
  const most = 16;

  if (viewer) {
    const sheet = viewer.firstElementChild;
    let scale = 1, left = 0, top = 0;
    const fingers = new Map();

    function draw() {
      const room = viewer.getBoundingClientRect();
      left = Math.min(0, Math.max(room.width * (1 - scale), left));
      top = Math.min(0, Math.max(room.height * (1 - scale), top));
      sheet.style.transform = `translate(${left}px, ${top}px) scale(${scale})`;
      viewer.dataset.zoom = scale.toFixed(2);
      viewer.classList.toggle("zoomed", scale > 1);
    }
    function zoom(factor, x, y) {
      const next = Math.min(most, Math.max(1, scale * factor));
      left = x - (x - left) * next / scale;
      top = y - (y - top) * next / scale;
      scale = next;
      draw();
    }
    function middle(factor) {
      const room = viewer.getBoundingClientRect();
      zoom(factor, room.width / 2, room.height / 2);
    }
    function place(event) {
      const room = viewer.getBoundingClientRect();
      return [event.clientX - room.left, event.clientY - room.top];
    }
    viewer.addEventListener("wheel", (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 400), ...place(event));
    }, { passive: false });
    viewer.addEventListener("pointerdown", (event) => {
      viewer.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, place(event));
    });
    viewer.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()];
      const old = fingers.get(event.pointerId), now = place(event);
      fingers.set(event.pointerId, now);
      if (fingers.size === 1) {
        left += now[0] - old[0];
        top += now[1] - old[1];
        draw();
      } else if (fingers.size === 2) {
        const after = [...fingers.values()];
        const apart = (pair) => Math.hypot(pair[0][0] - pair[1][0], pair[0][1] - pair[1][1]) || 1;
        zoom(apart(after) / apart(before), (after[0][0] + after[1][0]) / 2, (after[0][1] + after[1][1]) / 2);
      }
    });
    for (const kind of ["pointerup", "pointercancel"]) viewer.addEventListener(kind, (event) => fingers.delete(event.pointerId));
    viewer.addEventListener("dblclick", (event) => zoom(scale > 1 ? 0 : 3, ...place(event)));
    viewer.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
      if (event.key === "+" || event.key === "=") middle(1.5);
      else if (event.key === "-") middle(1 / 1.5);
      else if (event.key === "0") middle(0);
      else if (step && scale > 1) { left += step[0]; top += step[1]; draw(); event.stopPropagation(); }
      else return;
      event.preventDefault();
    });
    document.addEventListener("click", (event) => {
      const button = event.target.closest("[data-zoom]");
      if (button && button !== viewer) middle({ in: 1.5, out: 1 / 1.5, fit: 0 }[button.dataset.zoom]);
      const layer = event.target.closest("[data-layer]");
      if (layer) toggle(layer);
    });
    function toggle(button) {
      const on = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(on));
      if (button.dataset.layer === "outlines") sheet.querySelector("svg.outlines").classList.toggle("off", !on);
      else {
        const heat = sheet.querySelector("img.heat");
        if (on && !heat.src) heat.src = heat.dataset.src;
        heat.hidden = !on;
        document.querySelector("[data-heat-key]").hidden = !on;
      }
    }
    addEventListener("resize", draw);
    draw();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
    const chosen = document.querySelector(`[data-hotkey="${CSS.escape(event.key)}"]`);
    if (chosen) { event.preventDefault(); chosen.click(); return; }
    const link = { ArrowLeft: "older", ArrowRight: "newer" }[event.key];
    if (link && document.getElementById(link)) location.href = document.getElementById(link).href;
  });
})();
