"""Catalog models to ONNX files, by either of torch's exporters."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from models.catalog import Architecture, Size
from models.inputs import Array, make_inputs

Exporter = Literal["dynamo", "torchscript"]
OPSETS: Mapping[Exporter, int] = {"dynamo": 20, "torchscript": 17}
LIMITS = {"batch": 64, "seq": 512}  # upper bounds told to the new exporter
EXTERNAL_BYTES = 1 << 30  # a file of more has its weights beside it
SMALL_LIMITS = {"batch": 64, "seq": 64}


def export(
    architecture: Architecture,
    path: Path,
    size: Size = "full",
    exporter: Exporter = "dynamo",
    dynamic: bool = False,
    dims: Mapping[str, int] | None = None,
    opset: int | None = None,
    dtype: str = "float32",
    fold_norms: bool = True,
    module: torch.nn.Module | None = None,
) -> None:
    """Write `path`. `dynamic` keeps the named dims symbolic; else they are `dims` over the typical ones.

    `dtype` is that of weights and floating-point inputs. `fold_norms=False` keeps BatchNormalization nodes, which both
    exporters else fold into convolutions (the old exporter only). Weights of more than a gigabyte go into a file beside
    `path` (the old exporter: into one for each tensor, above two), since protobuf holds two. `module` is the
    architecture's, where it has been made already.
    """
    model = (module or architecture.module(size)).to(getattr(torch, dtype))
    inputs = architecture.inputs(size)
    # An example with batch 1 would let torch.export specialise on 1, so a dynamic export is traced with 2.
    bound = {**architecture.dims(size), **({"batch": 2} if dynamic else {}), **(dims or {})}
    example = {k: _tensor(v, dtype) for k, v in make_inputs(inputs, bound).items()}
    axes = {i.name: {a: d for a, d in enumerate(i.shape) if isinstance(d, str)} for i in inputs} if dynamic else {}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        if exporter == "torchscript":
            _torchscript(architecture, model, example, path, axes, opset or OPSETS[exporter], fold_norms)
        else:
            limits = LIMITS if size == "full" else SMALL_LIMITS
            _dynamo(architecture, model, example, path, axes, limits, opset or OPSETS[exporter])


def _tensor(array: Array, dtype: str) -> torch.Tensor:
    tensor = torch.from_numpy(array)
    return tensor.to(getattr(torch, dtype)) if tensor.is_floating_point() else tensor


def _torchscript(
    architecture: Architecture,
    model: torch.nn.Module,
    example: dict[str, torch.Tensor],
    path: Path,
    axes: dict[str, dict[int, str]],
    opset: int,
    fold_norms: bool,
) -> None:
    torch.onnx.export(
        model,
        tuple(example.values()),
        str(path),
        dynamo=False,
        opset_version=opset,
        input_names=list(example),
        output_names=list(architecture.outputs),
        dynamic_axes=axes or None,
        # PRESERVE leaves the (eval mode) BatchNorms alone; EVAL lets the exporter fold them.
        training=torch.onnx.TrainingMode.EVAL if fold_norms else torch.onnx.TrainingMode.PRESERVE,
        do_constant_folding=fold_norms,
    )


def _dynamo(
    architecture: Architecture,
    model: torch.nn.Module,
    example: dict[str, torch.Tensor],
    path: Path,
    axes: dict[str, dict[int, str]],
    limits: Mapping[str, int],
    opset: int,
) -> None:
    symbols = {name: torch.export.Dim(name, min=1, max=top) for name, top in limits.items()}
    shapes = {name: {axis: symbols[dim] for axis, dim in named.items()} for name, named in axes.items()}
    torch.onnx.export(
        model,
        (),
        str(path),
        kwargs=example,
        dynamo=True,
        opset_version=opset,
        input_names=list(example),
        output_names=list(architecture.outputs),
        dynamic_shapes=shapes or None,
        external_data=sum(w.nbytes for w in model.parameters()) > EXTERNAL_BYTES,
        verbose=False,
    )
