"""How fast DINOSaur is, and how that grows: ``python -m benchmarks [--quick] [--only NAME] [--out FILE]``.

Every benchmark is one module with ``run(quick) -> Section``. What is compared is measured in one process, in turns,
so that whatever else the machine does falls on all sides alike; tables show the median and the fastest of the turns.
"""

import dinosaur_ad  # noqa: F401 - before any run time: it switches their telemetry off
