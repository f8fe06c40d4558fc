"""Random weights that leave nothing to chance of being forgotten.

A freshly built network has biases of 0, norm gains of 1, BatchNorm statistics of 0 and 1 and layer scales of 1e-6: a
compiler that drops any of them passes every test. Here each of them is drawn. Matrices are drawn so that activations
keep a deviation around 1 and attention is far from uniform, and BatchNorm statistics are first measured on random
images, so that deep networks neither vanish nor overflow fp16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import nn


def perturb(model: nn.Module, example: Mapping[str, torch.Tensor], seed: int = 0) -> None:
    """Draw all weights of `model` in place and put it into eval mode.

    `example` is a batch for the forward pass that measures BatchNorm statistics (used only when there are any).
    """
    draw = torch.Generator().manual_seed(seed)
    done: set[int] = set()
    with torch.no_grad():
        for module in model.modules():
            for name, weight in module.named_parameters(recurse=False):
                if id(weight) not in done:  # tied weights are drawn once
                    done.add(id(weight))
                    _draw(module, name, weight, draw)
        _measure_batch_norms(model, example, draw)
    model.eval()


def _draw(module: nn.Module, name: str, weight: nn.Parameter, draw: torch.Generator) -> None:
    kind = type(module).__name__
    if name == "bias":
        weight.normal_(0, 0.1, generator=draw)
    elif "Norm" in kind:
        weight.uniform_(0.7, 1.3, generator=draw)
    elif isinstance(module, nn.Embedding):
        weight.normal_(0, 3 / math.sqrt(module.embedding_dim), generator=draw)
    elif isinstance(module, nn.Linear):
        weight.normal_(0, 1 / math.sqrt(module.in_features), generator=draw)
    elif kind == "Conv1D":  # transformers' Linear with the weight stored (in, out)
        weight.normal_(0, 1 / math.sqrt(weight.shape[0]), generator=draw)
    elif isinstance(module, nn.Conv2d):
        weight.normal_(0, math.sqrt(2 / weight[0].numel()), generator=draw)
    elif name in ("gamma", "layer_scale"):
        weight.uniform_(0.3, 0.8, generator=draw)
    else:  # class tokens, position embeddings, relative position tables
        weight.normal_(0, 0.3, generator=draw)


def _measure_batch_norms(model: nn.Module, example: Mapping[str, torch.Tensor], draw: torch.Generator) -> None:
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    if not norms:
        return
    model.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the cumulative average, so one pass sets the statistics
        norm.train()
    model(**example)
    for norm in norms:
        mean, var = norm.running_mean, norm.running_var
        assert mean is not None and var is not None
        spread = torch.randn(var.shape, generator=draw)
        var.clamp_(min=0.05)
        mean.add_(0.2 * spread * var.sqrt())
        var.mul_(torch.empty_like(var).uniform_(0.7, 1.4, generator=draw))
        norm.momentum = 0.1
