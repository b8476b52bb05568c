"""The page Live in a real browser: when each part is seen.

    python -m benchmarks.station_browser URL

It says "open" once the page listens, runs until its input ends, and then prints, as JSON, for each part that was shown
the times at which its verdict and its picture were drawn, in seconds since 1970.
"""

from __future__ import annotations

import json
import shutil
import sys
import threading

ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
WATCH = """
window.seen = {};
function drawn(key, what) {
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const seen = window.seen[key] = window.seen[key] || {};
    seen[what] = seen[what] || (performance.timeOrigin + performance.now()) / 1e3;
  }));
}
document.addEventListener("DOMContentLoaded", () => {
  for (const panel of document.querySelectorAll("[data-panel]")) {
    const stage = panel.querySelector("[data-stage]");
    let last = panel.dataset.key;
    new MutationObserver(() => {
      if (panel.dataset.key !== last) drawn(last = panel.dataset.key, "verdict");
      if (!stage.classList.contains("stale")) drawn(panel.dataset.key, "picture");
    }).observe(panel, { attributes: true, attributeFilter: ["data-key", "class"], subtree: true });
  }
});
"""


def main() -> None:
    from playwright.sync_api import sync_playwright

    (url,) = sys.argv[1:]
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("this needs the program chromium")
    ended = threading.Event()

    def until_told() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=until_told, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(ARGUMENTS))
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(WATCH)
        page.goto(url)
        page.wait_for_selector('body[data-connected="yes"]', timeout=60_000)
        print("open", flush=True)
        while not ended.is_set():
            page.wait_for_timeout(200)
        print(json.dumps(page.evaluate("window.seen")))
        browser.close()


if __name__ == "__main__":
    main()
