"""For all tests: settings of the user's environment are left out, compiled objects are shared between tests and runs,
and cpu code is compiled for this machine's instruction set alone, unless a test asks for more: that halves the time of
most. Hypothesis draws the same examples in each run, so that a change is judged by itself: ``AITC_TEST_FUZZ=1`` draws
fresh ones (``make fuzz``)."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

from hypothesis import settings

CACHE = Path(tempfile.gettempdir()) / f"aitc-test-cache-{getpass.getuser()}"

settings.register_profile("same", derandomize=True)
settings.register_profile("fresh", derandomize=False, print_blob=True)
settings.load_profile("fresh" if os.environ.get("AITC_TEST_FUZZ") else "same")

for name in [n for n in os.environ if n.startswith("AITC_")]:
    del os.environ[name]
os.environ["AITC_CACHE_DIR"] = str(CACHE)
os.environ["AITC_ISA"] = "native"
