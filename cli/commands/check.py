"""``aitc check``: can this be compiled? All problems at once, without any compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from aitc.errors import AitcError, Exit
from aitc.settings import Settings

from .. import options as flags
from ..render import Display, defect, diagnostic_json, print_diagnostics


@click.command("check", short_help="can this be compiled? all problems at once")
@click.argument("models", type=flags.MODEL, nargs=-1, required=True)
@flags.model_flags
@flags.json_flag
@flags.talk
def command(models: tuple[Path, ...], as_json: bool, verbose: bool, quiet: bool, **given: Any) -> int:
    """Say whether each of MODELS can be compiled, and if not, list all its problems. Runs the stages up to emit; needs
    no compiler.

    The exit code is that of the first model that cannot be.
    """
    from aitc.pipeline import Options, compile

    tuning = given["tuning"] or Settings.read().tuning
    options = Options(stop_after="emit", **{**given, "tuning": Path(tuning) if tuning else None})
    code = Exit.OK
    answers: list[dict[str, Any]] = []
    for model in models:
        try:
            with Display(quiet or not verbose, verbose) as display:
                result = compile(model, options, display)
        except (OSError, MemoryError):
            raise  # of this machine, not of the model
        except Exception as error:
            problems = error.diagnostics if isinstance(error, AitcError) else (defect(error, verbose),)
            exit_code = error.exit_code if isinstance(error, AitcError) else Exit.INTERNAL
            code = code or exit_code
            told = [diagnostic_json(d) for d in problems]
            answers.append({"model": str(model), "ok": False, "exit": int(exit_code), "errors": told})
            print_diagnostics(problems)
            if not as_json:
                print(f"{model}: no, {len(problems)} problem{'s' if len(problems) > 1 else ''}")
            continue
        assert result.plan is not None
        targets = [t.name for t in result.targets]
        answers.append(
            {"model": str(model), "ok": True, "exit": 0, "targets": targets, "launches": len(result.plan.launches)}
        )
        if not as_json:
            print(f"{model}: yes, {len(result.plan.launches)} launches on {', '.join(targets)}")
    if as_json:
        print(json.dumps({"ok": code is Exit.OK, "exit": int(code), "models": answers}, indent=2))
    return int(code)
