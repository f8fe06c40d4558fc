"""The symbols that running a node needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from aitc.ir import dim as dm
from aitc.ir.dim import Sum, Symbol
from aitc.ir.graph import Node


def mentioned(node: Node) -> Iterator[Symbol]:
    """The symbols that running ``node`` needs: of what it reads (through views), of its results, attributes and bodies."""
    if node.op.name == "ReadDims":
        return
    for v in node.inputs:
        while v is not None:
            yield from symbols_in(v.shape)
            p = v.producer
            if p is None or p.op.kind.value != "view":
                break
            yield from symbols_in(_attributes(p))
            v = p.input
    yield from symbols_in(_attributes(node))
    for o in node.outputs:
        yield from symbols_in(o.shape)
    for body in node.bodies:
        for inner in body.nodes:
            yield from mentioned(inner)


def _attributes(node: Node) -> Iterator[object]:
    for f in fields(node.attrs):
        x = getattr(node.attrs, f.name)
        yield from x if isinstance(x, tuple) else (x,)


def symbols_in(dims: Iterable[object]) -> Iterator[Symbol]:
    for d in dims:
        if isinstance(d, Sum):
            yield from dm.symbols(d)
        elif isinstance(d, tuple):
            yield from symbols_in(d)
