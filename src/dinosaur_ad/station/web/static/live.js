// The live page: a part is shown as soon as it is judged, its picture as soon as it is recorded.
"use strict";
(() => {
  const words = document.getElementById("words").dataset;
  const panels = [...document.querySelectorAll("[data-panel]")];
  const several = panels.length > 1;
  const joined = document.querySelector("[data-part-verdict]");
  const strip = document.querySelector("[data-strip]");
  const waiting = new Map();  // key of a part -> the part, until it is recorded
  const icons = document.querySelector("template#verdict-normal").content.querySelector("use").getAttribute("href").split("#")[0];

  const address = (id, number, kind) => `/parts/${id}/pictures/${number}/${kind}`;
  const name = (verdict) => verdict.replaceAll(" ", "_");
  const said = (text, value) => text.replace("%s", value);
  const decimal = (value) => value.toLocaleString(words.language, { minimumFractionDigits: 2, maximumFractionDigits: 2 });

  function showVerdict(band, verdict) {
    const pieces = document.getElementById("verdict-" + name(verdict)).content;
    band.className = band.className.replace(/\b(normal|anomalous|unknown|not_ready|none)\b/g, "").trim() + " " + name(verdict);
    band.querySelector("[data-shape]").replaceChildren(...pieces.querySelector(".shape").cloneNode(true).childNodes);
    const word = pieces.querySelector(".word").textContent;
    const place = band.querySelector("[data-word]");
    if (place.textContent !== word) place.textContent = word;
  }

  function panelOf(source) {
    return panels.find((panel) => panel.dataset.panel === source) || panels.find((panel) => !panel.dataset.panel);
  }

  function showView(panel, part, view) {
    const verdict = several || joined ? view.verdict : part.verdict;
    const seen = view.inspection;
    panel.dataset.key = part.key;
    panel.dataset.verdict = verdict;
    const band = panel.querySelector("[data-band]");
    showVerdict(band, verdict);
    const task = seen ? seen.task : part.task;
    band.querySelector("[data-task]").textContent = task ? (verdict === "unknown" ? said(words.nearest, task) : task) : "";
    band.querySelector("[data-reason]").textContent = verdict === "normal" || verdict === "anomalous" ? "" : (seen && seen.reason) || view.error || part.reason || "";
    const ratio = seen && seen.threshold > 0 && seen.threshold < 1e30 ? seen.score / seen.threshold : null;
    band.querySelector("[data-ratio]").textContent = ratio === null ? "" : said(words.ratio, decimal(ratio));
    band.querySelector("[data-taken]").dataset.taken = part.taken;
    panel.querySelector("[data-stage]").classList.add("stale");
    tick();
  }

  // Parts may come faster than their pictures: of those that wait only the newest is fetched.
  const fetching = new Map();  // panel -> until when its picture is waited for, and what is to be fetched next

  function showPicture(panel, ...what) {
    const before = fetching.get(panel);
    if (before && Date.now() < before.until) { before.next = what; return; }
    const mine = { until: Date.now() + 3000, next: null };
    fetching.set(panel, mine);
    fetchPicture(panel, ...what, () => {
      if (fetching.get(panel) !== mine) return;
      fetching.delete(panel);
      if (mine.next) showPicture(panel, ...mine.next);
    });
  }

  function fetchPicture(panel, part, number, id, done) {
    const view = part.views[number];
    const stage = panel.querySelector("[data-stage]");
    const fresh = new Image();
    fresh.alt = said(words.part, id);
    fresh.onload = () => {
      done();
      if (panel.dataset.key !== part.key) return;  // a newer part has come
      stage.querySelector("img").replaceWith(fresh);
      stage.querySelector("svg.outlines").replaceWith(outlines(view.inspection));
      stage.querySelector("[data-no-picture]").hidden = true;
      stage.classList.remove("stale");
    };
    fresh.onerror = () => { stage.classList.remove("stale"); done(); };
    fresh.src = address(id, number, "shown");
    stage.href = `/parts/${id}`;
    stage.setAttribute("aria-label", said(words.part, id));
  }

  function svg(kind, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  function outlines(seen) {
    const [height, width] = seen ? seen.image_size : [1, 1];
    const drawn = svg("svg", { class: "outlines", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const region of seen ? seen.regions : []) {
      const points = region.contour.map((point) => point.join(",")).join(" ");
      drawn.append(svg("polygon", { class: "edge", points }), svg("polygon", { class: "line", points }));
    }
    return drawn;
  }

  function chip(part) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    item.dataset.key = part.key;
    link.className = "chip new " + name(part.verdict);
    const thumb = Object.assign(document.createElement("span"), { className: "thumb" });
    const mark = Object.assign(document.createElement("span"), { className: "mark" });
    const icon = svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" });
    icon.append(svg("use", { href: icons + "#" + name(part.verdict) }));
    const word = document.getElementById("verdict-" + name(part.verdict)).content.querySelector(".word").textContent;
    mark.append(icon, Object.assign(document.createElement("span"), { className: "hidden", textContent: word }));
    const at = Object.assign(document.createElement("span"), { className: "at", textContent: new Date(part.taken).toLocaleTimeString("de") });
    link.append(thumb, mark, at);
    item.append(link);
    strip.prepend(item);
    while (strip.children.length > Number(strip.dataset.strip)) strip.lastElementChild.remove();
  }

  function count(verdict) {
    const place = document.querySelector(`[data-count="${verdict}"]`);
    if (place) place.textContent = Number(place.textContent) + 1;
  }

  document.body.addEventListener("station-part", (event) => {
    const part = event.detail;
    waiting.set(part.key, part);
    if (waiting.size > 200) waiting.delete(waiting.keys().next().value);
    if (joined) showVerdict(joined, part.verdict);
    const views = several ? part.views : part.views.slice().sort((one) => (one.verdict === part.verdict ? -1 : 1)).slice(0, 1);
    for (const view of views) {
      const panel = panelOf(view.source);
      if (panel) showView(panel, part, view);
    }
    chip(part);
    count(part.verdict);
  });

  // Where parts come fast, several are told of at once: of those, the pictures of the newest are fetched.
  let together = [];
  document.body.addEventListener("station-recorded", (event) => {
    together.push(event.detail);
    if (together.length === 1) setTimeout(showRecorded, 20);
  });

  function showRecorded() {
    const newest = new Set();  // panels that have had their newest part
    for (const { id, key } of together.reverse()) recorded(id, key, newest);
    together = [];
  }

  function recorded(id, key, newest) {
    const part = waiting.get(key);
    if (!part) return;
    waiting.delete(key);
    // A source that had no panel, such as an upload, gets one.
    if (!part.views.some((view) => panelOf(view.source))) { location.reload(); return; }
    const worst = Math.max(0, part.views.findIndex((view) => view.verdict === part.verdict));
    const own = part.views.map((view) => panelOf(view.source));
    const old = own.every((panel) => newest.has(panel));
    own.forEach((panel) => newest.add(panel));
    let kind = "small";
    part.views.forEach((view, number) => {
      const panel = panelOf(view.source);
      if (!panel || panel.dataset.key !== key || !(several || view.verdict === part.verdict)) return;
      if (number === worst && !fetching.has(panel)) kind = "shown";  // the chip then needs no picture of its own
      showPicture(panel, part, number, id);
    });
    const item = [...strip.children].find((each) => each.dataset.key === key);
    if (!item) return;
    item.firstElementChild.href = `/parts/${id}`;
    if (old) return;
    const picture = Object.assign(new Image(), { alt: "", loading: "lazy", src: address(id, worst, kind) });
    item.querySelector(".thumb").replaceChildren(picture);
  }

  document.body.addEventListener("station-source", (event) => {
    const { name: source, state, reason } = event.detail;
    for (const place of document.querySelectorAll("[data-source-state]")) {
      if (place.dataset.sourceState !== source || !state) continue;
      const key = "state" + state.charAt(0).toUpperCase() + state.slice(1);
      place.className = "state " + state;
      place.textContent = source + " · " + (words[key] || state);
      place.parentElement.querySelector("[data-source-reason]").textContent = reason || "";
    }
  });

  // A verdict of before must not look like the verdict of now once the station is out of reach.
  const connection = document.querySelector("[data-connection]");
  function connected(yes) {
    connection.hidden = yes;
    document.body.classList.toggle("offline", !yes);
  }
  let late = null;
  document.body.addEventListener("station-connected", () => { clearTimeout(late); late = null; connected(true); });
  document.body.addEventListener("station-lost", () => { late = late || setTimeout(() => connected(false), 1500); });
  document.body.addEventListener("station-resumed", () => location.reload());

  function tick() {
    for (const place of document.querySelectorAll("[data-taken]")) {
      if (!place.dataset.taken) continue;
      const seconds = Math.max(0, Math.round((Date.now() - new Date(place.dataset.taken)) / 1000));
      const text = seconds < 120 ? said(words.seconds, seconds) : seconds < 7200 ? said(words.minutes, Math.round(seconds / 60)) : said(words.hours, Math.round(seconds / 3600));
      if (place.textContent !== text) place.textContent = text;
    }
  }
  setInterval(tick, 1000);
  tick();
})();
