"""The weights as a file: the blob and a footer, appended to the library or kept beside it (read by host/weights.h)."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import numpy as np

from aitc.schedule.plan.plan import Plan

MAGIC = b"AITCWGT1"
PAGE = 4096


def footer(plan: Plan) -> bytes:
    """The 128 bytes that end a file of weights."""
    return struct.pack("<8sQ64s48x", MAGIC, plan.weights_bytes, plan.weights_digest.encode("ascii"))


def write_weights(plan: Plan, path: Path) -> None:
    """Writes blob and footer. Weights are streamed one by one, so that memory-mapped ones are never all in memory."""
    with open(path, "wb") as file:
        for weight in sorted(plan.weights, key=lambda w: w.offset):
            gap = weight.offset - file.tell()
            if gap < 0:
                raise ValueError(f"weight {weight.name} overlaps the one before it")
            file.write(b"\0" * gap)
            data = np.ascontiguousarray(weight.data)
            if data.nbytes != weight.bytes:
                raise ValueError(f"weight {weight.name} has {data.nbytes} bytes, the plan says {weight.bytes}")
            file.write(data.reshape(-1).view(np.uint8).data)
        if file.tell() > plan.weights_bytes:
            raise ValueError(f"the weights take {file.tell()} bytes, the plan says {plan.weights_bytes}")
        file.write(b"\0" * (plan.weights_bytes - file.tell()))
        file.write(footer(plan))


def append_weights(library: Path, weights: Path) -> None:
    """Appends a file of weights to a finished library, at a multiple of a page: the same bytes that the CMake project makes."""
    with open(library, "r+b") as out, open(weights, "rb") as blob:
        size = out.seek(0, os.SEEK_END)
        out.truncate((size + PAGE - 1) // PAGE * PAGE)
        out.seek(0, os.SEEK_END)
        shutil.copyfileobj(blob, out, 1 << 22)
