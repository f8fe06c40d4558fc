"""The program ``aitc``, also as ``python -m aitc_cli``. Signals are taken care of before anything else is imported."""

from __future__ import annotations

from . import interrupt

if __name__ in ("__main__", "aitc_cli.__main__"):
    interrupt.end_at_once()

import os
import sys

from .main import main


def run() -> None:
    """Runs the command line and ends the process with its exit code."""
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os._exit(code)  # the reader went away
    if code == interrupt.INTERRUPTED:
        os._exit(code)  # Python would otherwise end itself by SIGINT if the exception passed through its exec()
    sys.exit(code)


if __name__ == "__main__":
    run()
