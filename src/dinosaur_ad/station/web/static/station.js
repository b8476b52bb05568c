// What all pages share: the theme, the event stream as DOM events "station-KIND" on the body, and refusals in a sentence.
"use strict";
(() => {
  const root = document.documentElement;
  const ENDED = ["done", "failed", "refused"];

  function dark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  function say(sentence, kind) {
    const place = document.getElementById("notices");
    const line = document.createElement("p");
    line.className = "notice " + kind;
    line.textContent = sentence;
    place.replaceChildren(line);
  }

  function tell(kind, detail) {
    document.body.dispatchEvent(new CustomEvent("station-" + kind, { detail, bubbles: true }));
  }

  // Only pages that show something live listen, and only while they are seen: browsers allow few connections a server.
  function listen(kinds) {
    let stream = null;
    let lost = false;
    function open() {
      if (stream) return;
      stream = new EventSource("/events");
      stream.onopen = () => { document.body.dataset.connected = "yes"; if (lost) tell("resumed", {}); lost = false; tell("connected", {}); };
      stream.onerror = () => { document.body.dataset.connected = "no"; lost = true; tell("lost", {}); if (stream && stream.readyState === EventSource.CLOSED) again(); };
      for (const kind of kinds) stream.addEventListener(kind, (event) => received(kind, event));
      stream.addEventListener("dropped", () => tell("dropped", {}));
    }
    function again() { close(); setTimeout(open, 3000); }
    function close() { if (stream) stream.close(); stream = null; }
    function received(kind, event) {
      const body = JSON.parse(event.data);
      tell(kind, body);
      if (kind === "job" && ENDED.includes(body.state)) tell("job-ended", body);
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { lost = true; close(); } else open();
    });
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  }

  // A job may have ended after the page was drawn and before the stream was open.
  document.body.addEventListener("station-connected", async () => {
    for (const card of document.querySelectorAll('[data-job][data-ended="no"]')) {
      const answer = await fetch("/api/v1/jobs/" + encodeURIComponent(card.dataset.job));
      const job = answer.ok ? await answer.json() : null;
      if (job && ENDED.includes(job.state)) tell("job-ended", job);
    }
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-theme-toggle]")) {
      root.dataset.theme = dark() ? "light" : "dark";
      localStorage.setItem("dinosaur-theme", root.dataset.theme);
    }
    const back = event.target.closest("[data-back]");
    if (back && back.matches("a") && history.length > 1) { event.preventDefault(); history.back(); }
  });

  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-submit-on-change]");
    if (form) form.requestSubmit();
  });

  document.addEventListener("htmx:responseError", (event) => {
    const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    const sentence = page.querySelector("main p");
    say(sentence ? sentence.textContent : document.body.dataset.failed, "bad");
  });
  document.addEventListener("htmx:sendError", () => say(document.body.dataset.offline, "bad"));

  // A picture that is not kept any more says so instead of showing a broken image.
  document.addEventListener("error", (event) => {
    const image = event.target;
    if (!(image instanceof HTMLImageElement)) return;
    image.classList.add("gone");
    if (image.dataset.missing) image.replaceWith(Object.assign(document.createElement("span"), { className: "soft gone-text", textContent: image.dataset.missing }));
  }, true);

  // A chart that is wider than its place shows its newest end first.
  for (const box of document.querySelectorAll(".chart-box")) box.scrollLeft = box.scrollWidth;

  // A link to a folded part of the page unfolds it.
  function unfold() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target instanceof HTMLDetailsElement) target.open = true;
  }
  addEventListener("hashchange", unfold);
  document.addEventListener("DOMContentLoaded", unfold);  // not before: htmx has to hear it, to load what is inside

  const kinds = (document.body.dataset.events || "").split(" ").filter(Boolean);
  if (kinds.length) listen(kinds);
  globalThis.station = { say };
})();
