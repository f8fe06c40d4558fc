"""Random inputs that fit a model: element types, shapes, and what each input is for (``Port.use``)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from aitc.ir import dim as dm
from aitc.ir.parse import parse_dim
from aitc.schedule.plan.dims import consistent, fit, is_side, typical
from aitc.schedule.plan.plan import DimSource, Port, Require

Arrays = dict[str, np.ndarray]

_RANGES = {
    "u8": (0, 256),
    "i8": (-128, 128),
    "u4": (0, 16),
    "i4": (-8, 8),
    "u2": (0, 4),
    "i2": (-2, 2),
}  # wider ones may be indices


def dim_choices(
    dims: Sequence[DimSource], inputs: Sequence[Port], requires: Sequence[Require] = (), fixed: Mapping[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Sizes of all run-time dims (by C name) to verify at, best first; the caller takes the first that the reference
    accepts. ``fixed`` ones stay, and all ``requires`` are true where sizes are found that make them so.

    A hint (``--dim n=8`` hints, or the model's) wins; an image's height and width are 64 or 224, other dims small;
    then all at 1, at 2 and at their lower bounds, for models whose symbolic dims work at one size only.
    """
    seen: list[dict[str, int]] = []
    plans = (
        lambda d: d.hint if d.hint is not None else (64 if is_side(d, inputs) else 2 if d.axis == 0 else 16),
        lambda d: typical(d, inputs),
        lambda d: 224 if is_side(d, inputs) else 1 if d.axis == 0 else 64,
        lambda d: 1,
        lambda d: 2,
        lambda d: d.lo,
    )
    for plan in plans:
        wanted = {d.name: fit(plan(d), d) for d in dims} | dict(fixed or {})
        choice = consistent(wanted, dims, requires, fixed) or wanted
        if choice not in seen:
            seen.append(choice)
            yield choice


def other_choices(
    sizes: Mapping[str, int], dims: Sequence[DimSource], requires: Sequence[Require], fixed: Mapping[str, int] | None = None
) -> Iterator[dict[str, int]]:
    """Further sizes to verify at beside ``sizes``: other ones, and none of what may be empty (the past of a cached decoder)."""
    plans = ({d.name: _another(sizes[d.name], d) for d in dims}, {d.name: 0 if d.lo == 0 else sizes[d.name] for d in dims})
    seen = [dict(sizes)]
    for wanted in plans:
        choice = consistent(wanted, dims, requires, fixed)
        if choice is not None and choice not in seen:
            seen.append(choice)
            yield choice


def _another(size: int, d: DimSource) -> int:
    step = max(1, d.multiple_of)
    larger = fit(size + (32 if size >= 32 else 1) * step, d)
    return larger if larger != size else fit(max(size // 2, 1), d)


ATTEMPTS = 4  # kinds of values for integers that no use is known of, see ``random_inputs``


MANNERS = ("", "non-negative", "large", "small")  # ranges of values, see ``random_inputs``
_TIMES = {"large": 100.0, "small": 0.01}


def random_inputs(inputs: Sequence[Port], dims: Mapping[str, int], seed: int = 0, attempt: int = 0, manner: str = "") -> Arrays:
    """Arrays for all inputs by name. The same seed, names and dims give the same arrays everywhere, whatever the other
    inputs are. ``attempt`` counts kinds of values for integers of unknown use: a few small ones, 0 or 1, ones, zeros.

    ``manner`` is one of MANNERS, for models that give the same for all usual values: floats without a sign, a hundred times as large
    or as small, images up to 255; where they are large, ids are spread over their range, lengths are as long as may be.
    """
    return {p.name: random_array(p, tuple(dm.evaluate(d, dims) for d in p.shape), seed, dims, attempt, manner) for p in inputs}


def random_array(
    port: Port, shape: tuple[int, ...], seed: int, dims: Mapping[str, int] | None = None, attempt: int = 0, manner: str = ""
) -> np.ndarray:
    """One input. Floats are normal, images in 0..1 with the smoothness of photographs, ids and lengths in range, masks start with
    ones. ``dims``: the sizes of the symbols in ``port.use``."""
    rng = np.random.default_rng((seed, zlib.crc32(port.name.encode())))
    dtype = port.dtype
    use, _, limit = port.use.partition(":")
    if use in ("ids", "length", "count") and dtype.is_integer:
        first, most = (0, -1) if use == "ids" else (1, 0)
        bound = _limit(limit, dims) if limit else 3
        bound = 1 if use == "count" and attempt else bound
        if manner == "large" and use != "count":
            return _widest(use, bound if limit else 1000, shape).astype(dtype.numpy)
        values = np.asarray(rng.integers(first, max(first + 1, bound + most + 1), shape))
        if use == "length" and values.size:
            values.reshape(-1)[0] = max(1, bound)  # padding up to what the longest needs
        return values.astype(dtype.numpy)
    if use == "mask":
        return _mask(shape, rng).astype(dtype.numpy)
    if dtype.name == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low, high = _RANGES.get(dtype.name, ((0, 8), (0, 2), (1, 2), (0, 1))[attempt % ATTEMPTS])
        if use == "image":
            return np.asarray(255 * _image(shape, rng)).astype(dtype.numpy)
        if manner == "large" and dtype.name not in _RANGES:
            high = 1000
        return rng.integers(low, high, shape).astype(dtype.numpy)
    times = _TIMES.get(manner, 1.0)
    if dtype.kind == "complex":
        return (times * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))).astype(dtype.numpy)
    if dtype.kind == "string":
        return rng.choice(np.array(["a", "bc", "déf", ""], dtype=object), shape)
    floats = _floats(use, shape, rng) * (255 if use == "image" and manner == "large" else times)
    if manner == "non-negative":
        floats = np.abs(floats)
    return np.asarray(floats, dtype=np.float32).astype(dtype.numpy)


def _widest(use: str, bound: int, shape: tuple[int, ...]) -> np.ndarray:
    """Lengths as long as may be; ids from the first to the last."""
    if use == "length":
        return np.full(shape, max(1, bound))
    return np.linspace(0, max(0, bound - 1), int(np.prod(shape))).round().astype(np.int64).reshape(shape)


def _limit(text: str, dims: Mapping[str, int] | None) -> int:
    """The limit of a use: a number, or an expression over dims."""
    return int(text) if text.isdigit() else dm.evaluate(parse_dim(text), dims or {})


def _floats(use: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if use == "image":
        return _image(shape, rng)
    if use == "positive":
        return rng.uniform(0.05, 1, shape)
    if use == "boxes" and shape:  # x1, y1, x2, y2
        corner = rng.uniform(0, 24, (*shape[:-1], 2))
        return np.concatenate([corner, corner + rng.uniform(4, 24, corner.shape)], axis=-1)
    return rng.standard_normal(shape)


def _mask(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """1 for the first positions of the last axis, at least half of them, all of them in the first row: never an empty
    row."""
    if not shape or 0 in shape:
        return np.ones(shape, np.int64)
    width = shape[-1]
    rows = int(np.prod(shape[:-1]))
    lengths = rng.integers((width + 1) // 2, width + 1, rows)
    lengths[:1] = width
    return (np.arange(width)[None, :] < lengths[:, None]).astype(np.int64).reshape(shape)


def _image(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Smooth colour blobs with a little noise in 0..1; the two largest axes are height and width."""
    if 0 in shape:
        return np.zeros(shape)
    axes = sorted(sorted(range(len(shape)), key=lambda a: shape[a])[-2:])
    rest = tuple(1 if a in axes else n for a, n in enumerate(shape))
    total = np.zeros(shape)
    for _ in range(3):
        phase = rng.uniform(0, 2 * np.pi, rest)
        for a in axes:
            steps = np.linspace(0, 2 * np.pi, shape[a]).reshape([-1 if b == a else 1 for b in range(len(shape))])
            phase = phase + rng.uniform(0.5, 4, rest) * steps
        total = total + np.cos(phase)
    return np.clip(0.5 + total / 6 + rng.normal(0, 0.02, shape), 0, 1)
