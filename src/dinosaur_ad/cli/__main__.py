"""``python -m dinosaur_ad.cli`` is the command ``dinosaur``."""

from __future__ import annotations

import sys

from dinosaur_ad.cli import main

sys.exit(main())
