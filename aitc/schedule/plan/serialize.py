"""The Plan as JSON, without loss: what ``--dump`` writes and a resumed build reads. Weight data stays outside, by digest."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from aitc.errors import Loc
from aitc.ir import dim as dm
from aitc.ir import dtype as dt
from aitc.ir.parse import Symbols, parse_dim
from aitc.schedule.plan import plan as plans
from aitc.schedule.plan.plan import Plan, Weight

_CLASSES: dict[str, type] = {c.__name__: c for c in vars(plans).values() if isinstance(c, type) and is_dataclass(c)} | {
    "Loc": Loc
}


def plan_to_json(plan: Plan) -> str:
    """``plan`` as indented JSON; equal plans give equal bytes."""
    symbols: dict[str, dm.Symbol] = {}
    body = encode(plan, symbols)
    table = [{f.name: encode(getattr(s, f.name), {}) for f in fields(s)} for s in symbols.values()]
    return json.dumps({"symbols": table, "plan": body}, indent=1, ensure_ascii=False) + "\n"


def plan_from_json(text: str, weights: Mapping[str, np.ndarray] | None = None) -> Plan:
    """The Plan that ``text`` holds. ``weights`` gives the data of weights by name; those that are missing have empty data.

    Raises ValueError for text that is not a plan, or of another version's shape.
    """
    try:
        raw = json.loads(text)
        symbols: dict[str, dm.Symbol] = {}
        for s in raw["symbols"]:
            symbols[s["name"]] = dm.Symbol(**{k: decode(v, symbols) for k, v in s.items()})
        plan = decode(raw["plan"], symbols)
    except (KeyError, TypeError, AttributeError, ImportError) as e:
        raise ValueError(f"this is not the JSON of a plan: {type(e).__name__}: {e}") from e
    if not isinstance(plan, Plan):
        raise ValueError("this is not the JSON of a plan")
    data = weights or {}
    return dataclasses.replace(
        plan, weights=tuple(dataclasses.replace(w, data=data[w.name]) if w.name in data else w for w in plan.weights)
    )


def encode(x: Any, symbols: dict[str, dm.Symbol]) -> Any:
    """``x`` as JSON values; the symbols met are added to ``symbols``. Raises TypeError for what has no form."""
    if x is None or (isinstance(x, (bool, int, str)) and not isinstance(x, Enum)):
        return x
    if isinstance(x, float):
        return x if math.isfinite(x) else {"float": repr(x)}
    if isinstance(x, (tuple, list)):
        return [encode(e, symbols) for e in x]
    if isinstance(x, dm.Sum):
        for s in sorted(dm.symbols(x), key=str):
            encode(s.below, symbols)
            symbols.setdefault(s.name, s)
        return {"dim": str(x)}
    if isinstance(x, dt.DType):
        return {"dtype": x.name}
    if isinstance(x, Enum):
        return {"enum": _spelled(type(x)), "name": x.name}
    if isinstance(x, (frozenset, set)):
        return {"set": [encode(e, symbols) for e in sorted(x)]}
    if isinstance(x, Mapping):
        return {"map": [[encode(k, symbols), encode(v, symbols)] for k, v in x.items()]}
    if is_dataclass(x) and not isinstance(x, type):
        named = {
            f.name: encode(getattr(x, f.name), symbols)
            for f in fields(x)
            if not isinstance(getattr(x, f.name), np.ndarray)
        }
        return {"is": _spelled(type(x)), **named}
    if isinstance(x, (np.integer, np.bool_)):
        return x.item()
    raise TypeError(f"{type(x).__name__} has no JSON form")


def decode(x: Any, symbols: Symbols) -> Any:
    """What ``encode`` was given; lists become tuples, because a Plan holds nothing else."""
    if isinstance(x, list):
        return tuple(decode(e, symbols) for e in x)
    if not isinstance(x, dict):
        return x
    if "is" in x:
        cls = _find(x["is"])
        named = {k: decode(v, symbols) for k, v in x.items() if k != "is"}
        if cls is Weight:
            named["data"] = np.empty(0, named["dtype"].numpy)
        return cls(**named)
    if "dim" in x:
        return parse_dim(x["dim"], symbols)
    if "dtype" in x:
        return dt.BY_NAME[x["dtype"]]
    if "enum" in x:
        return _find(x["enum"])[x["name"]]  # type: ignore[index]
    if "float" in x:
        return float(x["float"])
    if "set" in x:
        return frozenset(decode(e, symbols) for e in x["set"])
    if "map" in x:
        return {decode(k, symbols): decode(v, symbols) for k, v in x["map"]}
    raise KeyError(f"no form has the keys {sorted(x)}")


def _spelled(cls: type) -> str:
    return cls.__name__ if _CLASSES.get(cls.__name__) is cls else f"{cls.__module__}:{cls.__qualname__}"


def _find(name: str) -> type:
    """A class of the plan, or of a module of aitc: a plan's JSON never imports anything else."""
    if name in _CLASSES:
        return _CLASSES[name]
    module, _, qualname = name.partition(":")
    if not module.startswith("aitc.") or not qualname.isidentifier():
        raise KeyError(f"no class is called {name!r}")
    return getattr(importlib.import_module(module), qualname)
