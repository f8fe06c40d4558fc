"""For all tests: settings of the user's environment are left out, compiled objects are shared between tests and runs,
and cpu code is compiled for this machine's instruction set alone, unless a test asks for more: that halves the time of
most."""

from __future__ import annotations

import getpass
import os
import tempfile
from pathlib import Path

CACHE = Path(tempfile.gettempdir()) / f"aitc-test-cache-{getpass.getuser()}"

for name in [n for n in os.environ if n.startswith("AITC_")]:
    del os.environ[name]
os.environ["AITC_CACHE_DIR"] = str(CACHE)
os.environ["AITC_ISA"] = "native"
