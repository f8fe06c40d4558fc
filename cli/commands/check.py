"""``aitc check``: can this be compiled? All problems at once, without any compiler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from aitc.errors import AitcError, Exit
from aitc.settings import Settings

from .. import options as flags
from ..coverage import operators_of, summary
from ..render import Display, defect, diagnostic_json, print_diagnostics, tell


@click.command("check", short_help="can this be compiled? all problems at once")
@click.argument("models", type=flags.MODEL, nargs=-1, required=True)
@flags.model_flags
@flags.json_flag
@flags.talk
def command(models: tuple[Path, ...], as_json: bool, verbose: bool, quiet: bool, **given: Any) -> int:
    """Say whether each of MODELS can be compiled, and if not, list all its problems. Runs the stages up to emit; needs
    no compiler. With each answer comes what ONNX's node tests said of its operators on the target, and the known gaps
    that may concern it.

    The exit code is that of the first model that cannot be.
    """
    from aitc.pipeline import Options, compile

    flags.split_inputs(given)
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
            target, known = _known(model, options.targets)
            answers.append({"model": str(model), "ok": False, "exit": int(exit_code), "errors": told, "operators": known})
            print_diagnostics(problems)
            if not as_json:
                tell(f"{model}: no, {len(problems)} problem{'s' if len(problems) > 1 else ''}")
                tell("".join(f"{line}\n" for line in summary(known, target)), end="")
            continue
        assert result.plan is not None
        targets = [t.name for t in result.targets]
        launches, known = len(result.plan.launches), operators_of(model, targets[0], compiles=True)
        answers.append(
            {"model": str(model), "ok": True, "exit": 0, "targets": targets, "launches": launches, "operators": known}
        )
        if not as_json:
            tell(f"{model}: yes, {launches} launches on {', '.join(targets)}")
            tell("".join(f"{line}\n" for line in summary(known, targets[0])), end="")
    if as_json:
        print(json.dumps({"ok": code is Exit.OK, "exit": int(code), "models": answers}, indent=2))
    return int(code)


def _known(model: Path, targets: tuple[str, ...]) -> tuple[str, list[dict[str, Any]]]:
    """The target's name and what is known of the operators there; nothing for a file or a target that is wrong."""
    from aitc.pipeline import choose_targets

    try:
        target = choose_targets(targets)[0].name
        return target, operators_of(model, target)
    except AitcError:
        return "", []
