// Teaching: files are sent a few at a time with a bar, and the bar of the learning follows the job.
"use strict";
(() => {
  const form = document.querySelector("form[data-upload]");
  const together = 8;

  if (form) {
    const input = form.querySelector("input[type=file]");
    const bar = form.querySelector("[data-upload-progress]");
    const drop = form.querySelector("[data-drop]");

    async function send(files) {
      bar.hidden = false;
      bar.max = files.length;
      for (let first = 0; first < files.length; first += together) {
        const body = new FormData();
        for (const file of files.slice(first, first + together)) body.append("pictures", file);
        const answer = await fetch(form.action, { method: "POST", body, headers: { "X-CSRF-Token": form.dataset.csrf, "HX-Request": "true" } });
        const text = await answer.text();
        if (!answer.ok) {
          const page = new DOMParser().parseFromString(text, "text/html");
          const sentence = page.querySelector("main p, p");
          globalThis.station.say(sentence ? sentence.textContent : document.body.dataset.failed, "bad");
          break;
        }
        const pictures = document.getElementById("pictures");
        pictures.innerHTML = text;
        htmx.process(pictures);
        bar.value = Math.min(files.length, first + together);
      }
      bar.hidden = true;
      form.reset();
    }
    const failed = () => globalThis.station.say(document.body.dataset.offline, "bad");
    form.addEventListener("submit", (event) => { event.preventDefault(); send([...input.files]).catch(failed); });
    input.addEventListener("change", () => { if (input.files.length) send([...input.files]).catch(failed); });
    for (const kind of ["dragover", "dragenter"]) drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
    for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => { event.preventDefault(); send([...event.dataTransfer.files]).catch(failed); });
  }

  document.body.addEventListener("station-job", (event) => {
    const job = event.detail;
    const card = document.querySelector(`[data-job="${CSS.escape(String(job.id))}"]`);
    const bar = card && card.querySelector("[data-job-progress]");
    if (!bar) return;
    if (job.total) {
      bar.max = job.total;
      bar.value = job.done;
      card.querySelector("[data-job-count]").textContent = `${job.done} / ${job.total}`;
    }
    card.querySelector("[data-job-sentence]").textContent = job.sentence || "";
  });
  // The forms for more pictures come back with a refusal, so the whole page is shown anew.
  document.body.addEventListener("station-job-ended", (event) => {
    const card = document.querySelector(`[data-job="${CSS.escape(String(event.detail.id))}"]`);
    if (card && card.dataset.ended === "no") location.reload();
  });
})();
