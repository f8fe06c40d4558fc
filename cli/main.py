"""``aitc``: the commands, and what becomes of errors. Nothing heavy is imported before a command asks for it."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import sys

import click

from aitc import __version__
from aitc.errors import AitcError, Diagnostic, Exit

COMMANDS = {
    "compile": "ONNX model to binary, verified",
    "verify": "compare a binary with the reference again",
    "bench": "measure a binary's latency",
    "tune": "measure configurations and remember the fastest",
    "show": "print any stage as text, with statistics",
    "check": "can this be compiled? all problems at once",
    "list": "targets, ops, kernels, rules, passes, toolchains, settings",
    "explain": "what an error code means and what to do",
}

EXITS = {
    Exit.OK: "done; the binary is verified, or a warning at the end says that it is not",
    Exit.INTERNAL: "a defect of aitc: please report it",
    Exit.USAGE: "wrong flags or arguments",
    Exit.MODEL: "the file is not a valid ONNX model",
    Exit.UNSUPPORTED: "the model is valid, but holds what aitc does not support",
    Exit.TOOLCHAIN: "no compiler for the target, or it failed",
    Exit.VERIFY: "the binary does not match the reference, or --require-verify could not verify",
    Exit.IO: "a file cannot be read or written, or the disk is full",
    Exit.RUNTIME: "the compiled model failed while running",
    Exit.INTERRUPTED: "interrupted (Ctrl-C); nothing half-written is left",
}


COMPLETE = "_AITC_COMPLETE"  # set by the shell's completion script: bash_source, zsh_complete ...


class Commands(click.Group):
    """Imports a command's module when it is asked for, so that ``aitc --help`` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f".commands.{cmd_name}", __package__)
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in EXITS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="aitc", message="%(prog)s %(version)s")
def cli() -> None:
    """Compiles ONNX models to self-contained binaries for CPUs, CUDA and HIP GPUs.

    Results go to stdout, everything said on the way to stderr. `aitc COMMAND --help` describes a command.
    """


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; the exit code is the process's. No user's mistake ends in a traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    wants_json = "--json" in arguments
    verbose = any(a in ("-v", "-vv", "--verbose") for a in arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of models and files may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    completing = COMPLETE in os.environ  # click answers it, whatever the arguments
    if not arguments and not completing:
        print(cli.get_help(click.Context(cli, info_name="aitc", **cli.context_settings)), file=sys.stderr)
        return int(Exit.USAGE)
    try:
        result = cli.main(args=arguments, prog_name="aitc", complete_var=COMPLETE, standalone_mode=False)
        sys.stdout.flush()
        return int(result) if isinstance(result, int) else int(Exit.OK)
    except AitcError as error:
        return _report(error.diagnostics, error.exit_code, wants_json)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _report((Diagnostic("C01", "interrupted"),), Exit.INTERRUPTED, wants_json)
    except click.ClickException as error:
        usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        hint = (
            error.ctx.command_path + " --help" if isinstance(error, click.UsageError) and error.ctx else "aitc --help"
        )
        lines = (usage,) if usage else ()
        return _report((Diagnostic("C02", error.format_message(), detail=lines, help=hint),), Exit.USAGE, wants_json)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of stdout went away, as in `aitc show ... | head`
        return int(Exit.OK)
    except OSError as error:
        return _report((_os_problem(error),), Exit.IO, wants_json)
    except MemoryError:
        return _report((Diagnostic("C04", "out of memory", help="try --jobs 1"),), Exit.IO, wants_json)
    except Exception as error:
        return _defect(error, verbose, wants_json)


def _os_problem(error: OSError) -> Diagnostic:
    where = f"{error.filename}: " if error.filename else ""
    text = error.strerror or str(error)
    way_out = (
        "free some space, or point --output and AITC_CACHE_DIR to another disk" if error.errno == errno.ENOSPC else ""
    )
    return Diagnostic("C03", f"{where}{text}", help=way_out)


def _defect(error: Exception, verbose: bool, wants_json: bool) -> int:
    from .render import defect

    return _report((defect(error, verbose),), Exit.INTERNAL, wants_json)


def _report(diagnostics: tuple[Diagnostic, ...], code: Exit, wants_json: bool) -> int:
    """Says what is wrong on stderr, and with --json as an object on stdout too."""
    from .render import diagnostic_json, print_diagnostics

    print_diagnostics(diagnostics)
    if wants_json:
        answer = {"ok": False, "exit": int(code), "errors": [diagnostic_json(d) for d in diagnostics]}
        print(json.dumps(answer, indent=2), flush=True)
    return int(code)
