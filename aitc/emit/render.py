"""The only door to jinja2: templates by name, contexts as frozen dataclasses, text out."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2

from aitc.ir.cpp import c_string, comment

if TYPE_CHECKING:
    if sys.version_info >= (3, 11):
        from importlib.resources.abc import Traversable
    else:
        from importlib.abc import Traversable


@lru_cache(maxsize=1)
def template_root() -> Traversable:
    """The folder of templates and headers: the source tree's ``codegen_templates``, else the installed package ``aitc_templates``."""
    beside = Path(__file__).resolve().parents[2] / "codegen_templates"
    if beside.is_dir():
        return beside
    return files(import_module("aitc_templates"))


def read_template_file(path: str) -> str:
    """The text of a file below the template root, e.g. ``include/aitc/types.h``. Raises FileNotFoundError."""
    text: str = template_root().joinpath(*path.split("/")).read_text(encoding="utf-8")
    return text


def _load(name: str) -> str | None:
    try:
        return read_template_file(name)
    except (FileNotFoundError, IsADirectoryError):
        return None


class Lines(str):
    """Text of our own that has several lines, such as a header that is pasted into another."""


def _one_line(value: Any) -> Any:
    """What an expression of a template prints. Raises ValueError for a line break or a character that does not show: text of the
    model that did not go through ``comment`` or ``c_string``."""
    if isinstance(value, str) and not isinstance(value, Lines) and not value.isprintable():
        raise ValueError(f"a template prints {value[:80]!r}: text of a model goes through comment() or c_string()")
    return value


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_load),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        auto_reload=False,
        finalize=_one_line,
    )
    environment.filters["c_string"] = c_string
    environment.filters["comment"] = comment
    environment.filters["json"] = json.dumps
    return environment


def variables(context: Any) -> dict[str, Any]:
    """What a template sees of ``context``: the fields of a dataclass, or the entries of a mapping."""
    if is_dataclass(context) and not isinstance(context, type):
        return {f.name: getattr(context, f.name) for f in fields(context)}
    if isinstance(context, Mapping):
        return dict(context)
    raise TypeError(f"a template's context is a dataclass, not {type(context).__name__}")


def render(template: str, context: Any, **more: Any) -> str:
    """The text of ``template`` (a path below the template root, e.g. ``kernels/map.j2``). Undefined names raise jinja2.UndefinedError.

    ``more`` are further variables, which the context's own fields override.
    """
    return _environment().get_template(template).render({**more, **variables(context)})


def has_template(template: str) -> bool:
    return _load(template) is not None
