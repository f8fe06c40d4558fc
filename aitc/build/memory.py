"""How much memory there is: what decides how much runs at once, never what comes out."""

from __future__ import annotations

import re
from pathlib import Path


def available_bytes() -> int:
    """Free memory of the machine or of the control group, whichever is less."""
    available = 1 << 62
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
        if match:
            available = int(match.group(1)) << 10
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            available = min(
                available, int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
            )
    except (OSError, ValueError):
        pass
    return max(available, 0)
