// Zones: polygons drawn on the picture of a part, with mouse, finger or keys; corners can be dragged.
"use strict";
(() => {
  const form = document.querySelector("form[data-zones]");
  const canvas = form && form.querySelector("[data-zone-canvas]");
  const text = form && form.querySelector("[data-zone-text]");
  if (!form || !text) return;

  const width = Number(form.dataset.width), height = Number(form.dataset.height);
  const shapes = form.querySelector("[data-zone-shapes]");
  const list = form.querySelector("[data-zone-list]");
  let zones = read(form.dataset.drawn) || [];
  let open = [];       // corners of the polygon that is being drawn
  let kind = "ignore";
  let dragged = null;  // [corners, index]
  let cursor = null;   // for drawing by keys

  function read(value) {
    try {
      const found = JSON.parse(value);
      return Array.isArray(found) ? found.map((zone) => ({ kind: "inspect" in zone ? "inspect" : "ignore", points: zone.inspect || zone.ignore })).filter((zone) => Array.isArray(zone.points)) : null;
    } catch { return null; }
  }
  function written() {
    return JSON.stringify(zones.map((zone) => ({ [zone.kind]: zone.points })));
  }
  function point(event) {
    const room = canvas.getBoundingClientRect();
    const x = (event.clientX - room.left) / room.width * width, y = (event.clientY - room.top) / room.height * height;
    return [Math.round(Math.min(width, Math.max(0, x))), Math.round(Math.min(height, Math.max(0, y)))];
  }
  function pixel() { return width / Math.max(1, canvas.getBoundingClientRect().width); }
  function svg(name, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  function joined(points) { return points.map((each) => each.join(",")).join(" "); }

  function draw() {
    const size = pixel();
    shapes.replaceChildren();
    zones.forEach((zone, number) => {
      shapes.append(svg("polygon", { class: "zone " + zone.kind, points: joined(zone.points) }));
      zone.points.forEach((corner, index) => shapes.append(svg("circle", { class: "corner", cx: corner[0], cy: corner[1], r: 7 * size, "data-zone": number, "data-corner": index })));
    });
    if (open.length) {
      shapes.append(svg("polyline", { class: "zone open " + kind, points: joined(open) }));
      open.forEach((corner, index) => shapes.append(svg("circle", { class: index ? "corner" : "corner first", cx: corner[0], cy: corner[1], r: (index ? 6 : 10) * size, "data-open": index })));
    }
    if (cursor) shapes.append(svg("path", { class: "cursor", d: `M${cursor[0] - 12 * size} ${cursor[1]}h${24 * size}M${cursor[0]} ${cursor[1] - 12 * size}v${24 * size}` }));
    list.replaceChildren(...zones.map(entry));
    form.querySelector("[data-close]").disabled = open.length < 3;
    form.querySelector("button[data-back]").disabled = !open.length;
    text.value = written();
  }
  function entry(zone, number) {
    const item = document.createElement("li");
    const swatch = Object.assign(document.createElement("span"), { className: "swatch " + zone.kind });
    const label = document.createElement("span");
    label.textContent = `${number + 1}. ${form.dataset[zone.kind]} (${form.dataset.corners.replace("%s", zone.points.length)})`;
    const remove = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: form.dataset.remove });
    remove.addEventListener("click", () => { zones.splice(number, 1); draw(); });
    item.append(swatch, label, remove);
    return item;
  }
  function close() {
    if (open.length >= 3) zones.push({ kind, points: open });
    open = [];
    draw();
  }
  function add(corner) {
    const size = pixel();
    if (open.length >= 3 && Math.hypot(corner[0] - open[0][0], corner[1] - open[0][1]) < 14 * size) close();
    else { open.push(corner); draw(); }
  }

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    event.preventDefault();
    canvas.focus({ preventScroll: true });
    cursor = null;
    const corner = event.target.closest && event.target.closest("circle[data-zone]");
    if (corner && !open.length) {
      dragged = [zones[Number(corner.dataset.zone)].points, Number(corner.dataset.corner)];
      canvas.setPointerCapture(event.pointerId);
    } else add(point(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!dragged) return;
    dragged[0][dragged[1]] = point(event);
    draw();
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => { dragged = null; });
  canvas.addEventListener("dblclick", (event) => { event.preventDefault(); open.pop(); close(); });
  canvas.addEventListener("keydown", (event) => {
    const step = (event.shiftKey ? 1 : 12) * pixel();
    const move = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (move) {
      cursor = cursor || [width / 2, height / 2];
      cursor = [Math.round(Math.min(width, Math.max(0, cursor[0] + move[0]))), Math.round(Math.min(height, Math.max(0, cursor[1] + move[1])))];
      draw();
    } else if (event.key === " " && cursor) add([...cursor]);
    else if (event.key === "Enter") close();
    else if (event.key === "Backspace") { open.pop(); draw(); }
    else if (event.key === "Escape") { open = []; cursor = null; draw(); }
    else return;
    event.preventDefault();
  });
  form.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.kind) {
      kind = button.dataset.kind;
      for (const each of form.querySelectorAll("[data-kind]")) each.setAttribute("aria-pressed", String(each === button));
      draw();
    } else if ("close" in button.dataset) close();
    else if ("back" in button.dataset) { open.pop(); draw(); }
  });
  text.addEventListener("change", () => { const found = read(text.value); if (found) { zones = found; draw(); } });
  form.addEventListener("submit", () => { if (open.length >= 3) close(); });
  addEventListener("resize", draw);
  draw();
})();
