"""``aitc explain CODE``: what an error code means and what to do."""

from __future__ import annotations

import json
import shutil
import textwrap

import click

from aitc.codes import CODES
from aitc.errors import AitcError, Diagnostic, Exit

from .. import options as flags


@click.command("explain", short_help="what an error code means and what to do")
@click.argument("code", required=False)
@flags.json_flag
def command(code: str | None, as_json: bool) -> int:
    """Explain the error CODE that a message begins with, as in error[I04]; without CODE list all."""
    if code is None:
        wanted = sorted(CODES)
    else:
        key = code.strip("[]").upper()
        if key not in CODES:
            near = ", ".join(c for c in sorted(CODES) if c[0] == key[:1]) or ", ".join(sorted(CODES))
            raise AitcError(Diagnostic("C02", f"no error has the code {code!r}", help=f"one of: {near}"), Exit.USAGE)
        wanted = [key]
    if as_json:
        print(json.dumps({c: {"title": CODES[c].title, "explanation": CODES[c].text} for c in wanted}, indent=2))
    elif code is None:
        for c in wanted:
            print(f"{c}  {CODES[c].title}")
    else:
        print(f"{wanted[0]}: {CODES[wanted[0]].title}\n")
        print(textwrap.fill(CODES[wanted[0]].text, min(100, shutil.get_terminal_size().columns)))
    return int(Exit.OK)
