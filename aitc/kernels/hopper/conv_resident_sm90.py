"""What convolutions with resident weights on Hopper share (conv_stem_sm90, conv_patch_sm90): tiles of 8 pixels a line, results stored by a tensor map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aitc.ir.dim import Dim, mul
from aitc.ir.graph import Value
from aitc.kernels.conv.convolution import ConvForm, conv_form, filter_root
from aitc.kernels.core import kernel as k
from aitc.kernels.core.functor import Parameters, StorageOf
from aitc.kernels.core.group import Group
from aitc.kernels.core.sites import constant_array, result_functor
from aitc.kernels.hopper.conv_sm90 import dense_output


@dataclass(frozen=True, slots=True)
class Resident:
    """Such a convolution of known sizes: ``array`` is the filter, ``dense`` the place of its results, ``store`` their functor."""

    form: ConvForm
    root: Value
    array: np.ndarray
    dense: Any
    parameters: Parameters
    store: k.FunctorText
    size: tuple[int, int]  # of the image: height, width
    out: tuple[int, int]
    pad: tuple[int, int]

    def window(self) -> tuple[str, ...]:
        """The struct of constants that the kernel's text takes."""
        p = self.form.problem
        names = ("R", "S", "P", "Q", "pad_h", "pad_w")
        values = ", ".join(f"{a} = {b}" for a, b in zip(names, (*p.window[1:], *self.out, *self.pad), strict=True))
        return ("struct Window {", f"  static constexpr int {values};", "};")

    def map_d(self) -> k.MapSpec:
        """Results: (K, Q, P, N), in boxes of 64 filters, 8 x 2 pixels."""
        p, row, (P, Q) = self.form.problem, self.dense.stride_row, self.out
        strides = (mul(row, 2), mul(row, 2 * Q), mul(row, 2 * Q * P))
        return k.MapSpec("map_d", self.dense.root, self.dense.rest, (p.K, Q, P, p.N), strides, (64, 8, 2, 1), (1, 1, 1, 1))

    def tiles(self, blocks: int) -> Dim:
        """Tiles of 8 x 8·``blocks`` pixels."""
        P, Q = self.out
        return mul(self.form.problem.N, -(-Q // 8) * -(-P // (8 * blocks)))


def resident(group: Group, storage: StorageOf) -> Resident:
    """The convolution that a group is built around; its kernel has accepted it."""
    assert group.anchor is not None
    form = conv_form(group.anchor, storage)
    assert isinstance(form, ConvForm)
    p = form.problem
    dense, root = dense_output(group, form, storage), filter_root(group.anchor)
    array = constant_array(group.anchor.inputs[1])  # type: ignore[arg-type]
    assert dense is not None and root is not None and isinstance(array, np.ndarray)
    size, out, pad = ((int(d[1]), int(d[2])) for d in (p.input, p.output, p.pad))  # type: ignore[arg-type]
    parameters = Parameters()
    signature = "int group, int64_t row, int64_t col"
    store = result_functor(group, group.anchor.output, form.index, form.coords, parameters, storage, signature)
    assert (id(root), True) not in parameters.pointers, "a filter is no operand of its own epilogue"
    return Resident(form, root, array, dense, parameters, store, size, out, pad)
