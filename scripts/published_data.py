"""Write the checksums of the images behind the stored results into the package, for ``dinosaur bench verify``.

python scripts/published_data.py
"""

from __future__ import annotations

import json
from pathlib import Path

from dinosaur_ad.bench.published_data import FILE, collect
from dinosaur_ad.bench.results import find_results

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Read ``results/bench`` and write the file."""
    finished, _ = find_results([str(ROOT / "results" / "bench")])
    text = json.dumps(collect(finished), indent=1) + "\n"
    (ROOT / "src" / "dinosaur_ad" / "bench" / FILE).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
