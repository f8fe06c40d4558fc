"""Inputs that a user gives instead of made-up ones: .npy files by name, or a folder of them or of ONNX's test data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aitc.errors import AitcError, Diagnostic, Exit, near
from aitc.importer import dims as spelling
from aitc.importer.values import Bound
from aitc.importer.weights import read_tensor
from aitc.ir import dim as dm
from aitc.schedule.plan.plan import DimSource, Port, Require

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Given:
    """Arrays of some or all inputs by name, and of ``expected`` outputs if there are any; ``sizes`` of the dims (by C name) that they
    show; ``where`` they are from."""

    inputs: Arrays
    expected: Arrays = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    where: str = ""


def read_given(
    files: Sequence[tuple[str, Path]], folder: Path | None, inputs: Sequence[Port], outputs: Sequence[str], dims: Sequence[DimSource],
    bound: Sequence[Bound] = (),
) -> tuple[Given, ...]:
    """What --input NAME=FILE and --data FOLDER name; nothing where neither is given.

    The folder holds NAME.npy (other characters than letters, digits, ``.`` and ``-`` of the name may be ``_``), or input_0.pb,
    input_1.pb ... in the order of the model's inputs, the ``bound`` ones among them, and maybe output_0.pb ..., or folders test_data_set_0 ... of these.
    Files win.
    Raises AitcError: all names that the model has not, types and shapes that it does not take (USAGE), files that cannot be read (IO).
    """
    problems: list[Diagnostic] = []
    names = [p.name for p in inputs]
    for b in sorted(bound, key=lambda b: b.index):
        names.insert(b.index, b.name)
    own: Arrays = {}
    for name, path in (_split(n, p, names) for n, p in files):
        if name in names:
            own[name] = _read(path)
        else:
            problems.append(Diagnostic("C02", f"--input {name}: the model has no such input", help=near(name, names, "inputs")))
    sets = [folder] if folder is not None else []
    if folder is not None:
        if not folder.is_dir():
            raise AitcError(Diagnostic("O03", f"--data {folder} is not a folder"), Exit.IO)
        sets = sorted(p for p in folder.glob("test_data_set_*") if p.is_dir()) or sets
    found = [_read_folder(place, names, outputs, problems) for place in sets] or ([Given({}, where="--input")] if own else [])
    result = []
    for given in found:
        arrays = {**given.inputs, **own}
        problems += [
            Diagnostic("C02", f"input {b.name!r} is a constant of the binary, {b.array.tolist()}, and its file holds something else")
            for b in bound
            if b.name in arrays and not np.array_equal(arrays[b.name], b.array)
        ]
        taken: Arrays = {}
        sizes: dict[str, int] = {}
        for index, port in enumerate(inputs):
            if port.name in arrays:
                taken[port.name] = _taken(arrays[port.name], port, problems)
                sizes |= _shown(taken[port.name].shape, index, port, dims, sizes, problems)
        result.append(Given(taken, given.expected, sizes, given.where))
    if problems:
        raise AitcError(dict.fromkeys(problems), Exit.USAGE)
    return tuple(result)


def _split(name: str, path: Path, names: Sequence[str]) -> tuple[str, Path]:
    """NAME and FILE of NAME=FILE, which was cut at its first ``=``: names may hold some."""
    text = f"{name}={path}"
    fitting = max((n for n in names if text.startswith(n + "=")), key=len, default=name)
    return fitting, Path(text[len(fitting) + 1 :])


def _read(path: Path) -> np.ndarray:
    try:
        if path.suffix == ".pb":
            return read_tensor(path)
        return np.asarray(np.load(path, allow_pickle=False))
    except OSError as error:
        raise AitcError(Diagnostic("O03", f"{path} cannot be read: {error.strerror or error}"), Exit.IO) from None
    except (ValueError, EOFError) as error:
        kind = "a tensor of ONNX" if path.suffix == ".pb" else ".npy"
        raise AitcError(Diagnostic("O03", f"{path} cannot be read as {kind}: {error}"), Exit.IO) from None


def _read_folder(folder: Path, names: Sequence[str], outputs: Sequence[str], problems: list[Diagnostic]) -> Given:
    inputs, expected = _numbered(folder, "input", names, problems), _numbered(folder, "output", outputs, problems)
    files = {p.stem: p for p in sorted(folder.glob("*.npy"))}
    for of, known in ((inputs, names), (expected, outputs)):
        for name in known:
            path = files.pop(name, None) or files.pop(re.sub(r"[^A-Za-z0-9.-]", "_", name), None)
            if path is not None:
                of[name] = _read(path)
    if not inputs:
        what = f"{folder} holds no input of the model"
        problems.append(Diagnostic("C02", what, help=f"NAME.npy for {', '.join(names)}, or input_0.pb ..."))
    problems += [Diagnostic("C02", f"{p}: the model has no input {s!r}", help=near(s, names, "inputs")) for s, p in files.items()]
    return Given(inputs, expected, where=str(folder))


def _numbered(folder: Path, what: str, names: Sequence[str], problems: list[Diagnostic]) -> Arrays:
    found: Arrays = {}
    for path in folder.glob(f"{what}_*.pb"):
        number = path.stem.rpartition("_")[2]
        if number.isdigit() and int(number) < len(names):
            found[names[int(number)]] = _read(path)
        else:
            problems.append(Diagnostic("C02", f"{path}: the model has {len(names)} {what}s", help="they are counted from 0"))
    return found


def _taken(array: np.ndarray, port: Port, problems: list[Diagnostic]) -> np.ndarray:
    """``array`` as the port's element type: .npy knows bfloat16 and its like as bytes only."""
    want = port.dtype.numpy
    if array.dtype.kind == "V" and array.dtype.itemsize == want.itemsize:
        return array.view(want)
    if array.dtype != want:
        text = f"input {port.name!r} is {port.dtype}, and its file holds {array.dtype}"
        problems.append(Diagnostic("C02", text, help=f"convert it, for example with .astype({want.name!r})"))
    return array


def _shown(
    shape: tuple[int, ...], index: int, port: Port, dims: Sequence[DimSource], known: Mapping[str, int], problems: list[Diagnostic]
) -> dict[str, int]:
    """Sizes of the dims that are read from this input; notes where ``shape`` is none of the port's."""
    spelled = ", ".join(map(str, port.shape))
    wrong = Diagnostic("C02", f"input {port.name!r} is [{spelled}], and its file holds {list(shape)}")
    if len(shape) != len(port.shape):
        problems.append(wrong)
        return {}
    found = {d.name: shape[d.axis] for d in dims if d.input == index}
    bad = [d for d in dims if d.input == index and not (d.lo <= shape[d.axis] <= d.hi and shape[d.axis] % max(1, d.multiple_of) == 0)]
    every = {**known, **found}
    for have, want in zip(shape, port.shape):
        if {s.name for s in dm.symbols(want)} <= every.keys() and dm.evaluate(want, every) != have:
            problems.append(wrong)
            return found
    for d in bad:
        problems.append(Diagnostic("C02", f"input {port.name!r}: dim {d.model_name} is {shape[d.axis]}, and may be {d.lo} to {d.hi}"))
    return found


Asked = Sequence[tuple[str, "int | tuple[int, int] | str"]]  # of --dim


def asked_sizes(asked: Asked, dims: Sequence[DimSource]) -> tuple[dict[str, int], tuple[Require, ...]]:
    """What --dim asks of a compiled model: sizes of dims by C name, and what has to be true of them (``total=past+seq``).

    Raises AitcError (USAGE) for dims that the model has not, for ranges, and for sizes out of bounds.
    """
    names = {spelled: d for d in dims for spelled in (d.name, d.model_name)}
    fixed: dict[str, int] = {}
    rules: list[Require] = []
    problems: list[Diagnostic] = []

    def symbol(name: str) -> dm.Dim:
        if name in names:
            return dm.symbol(names[name].name)
        help_ = near(name, sorted({d.model_name for d in dims}), "dims")
        problems.append(Diagnostic("C02", f"the model has no symbolic dim {name!r}", help=help_))
        return 1

    for name, value in asked:
        d = names.get(name)
        if d is None:
            symbol(name)
        elif isinstance(value, str):
            rules.append(Require(symbol(name), spelling.parse(value, symbol), True, f"--dim {name}={value}"))
        elif not isinstance(value, int):
            problems.append(Diagnostic("C02", f"--dim {name}={value[0]}..{value[1]}: one size is needed"))
        elif not d.lo <= value <= d.hi or value % max(1, d.multiple_of):
            problems.append(Diagnostic("C02", f"--dim {name}={value}: it may be {d.lo} to {d.hi}"))
        else:
            fixed[d.name] = value
    if problems:
        raise AitcError(dict.fromkeys(problems), Exit.USAGE)
    return fixed, tuple(rules)
