"""Modules whose results are plain tuples of tensors, which is what an ONNX graph returns."""

from __future__ import annotations

import torch
from torch import nn


class TextModel(nn.Module):
    """Calls a Hugging Face model by keyword and returns the tensors of its result, in order."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, ...]:
        more = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        result = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **more)
        return tuple(result)


class Detections(nn.Module):
    """A detector of torchvision on one image [3, H, W]: the entries of its result by name, in the order of ``outputs``."""

    def __init__(self, model: nn.Module, outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.outputs = outputs

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (found,) = self.model([image])
        return tuple(found[name] for name in self.outputs)


def wrap(model: nn.Module) -> nn.Module:
    """`model` itself, or a TextModel around it if it comes from transformers."""
    return TextModel(model) if hasattr(model, "config") else model
