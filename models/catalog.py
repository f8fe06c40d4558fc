"""The catalog: eleven well-known architectures, at full size and at small depth.

Weights are random (`perturb`), since nothing is downloaded; the graphs are those of the trained models. This module
imports torch only when something is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from models.inputs import Input, make_inputs

if TYPE_CHECKING:
    import torch

Size = Literal["full", "small"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One architecture.

    build    the module with torch's own initial weights, in any mode
    inputs   in the order and by the names of the module's forward; named dims are the dynamic ones
    dims     a typical value for each named dim: what a static export is fixed to
    outputs  names for the graph's outputs
    source   the package or file that defines the module
    """

    name: str
    source: str
    build: Callable[[Size], torch.nn.Module]
    inputs: Callable[[Size], tuple[Input, ...]]
    dims: Callable[[Size], Mapping[str, int]]
    outputs: tuple[str, ...]

    def module(self, size: Size, seed: int = 0) -> torch.nn.Module:
        """The module in eval mode with drawn weights; the same seed gives the same weights (on the same torch)."""
        import torch

        from models.perturb import perturb
        from models.wrap import wrap

        torch.manual_seed(seed)
        model = wrap(self.build(size))
        batch = {**self.dims(size), "batch": 4 if size == "full" else 16}
        perturb(model, {k: torch.from_numpy(v) for k, v in make_inputs(self.inputs(size), batch, seed).items()}, seed)
        return model


def _image(full: int, small: int) -> Callable[[Size], tuple[Input, ...]]:
    def inputs(size: Size) -> tuple[Input, ...]:
        side = full if size == "full" else small
        return (Input("x", ("batch", 3, side, side), kind="image", low=-2, high=2),)

    return inputs


def _text(vocabulary: int, *more: str) -> Callable[[Size], tuple[Input, ...]]:
    def inputs(size: Size) -> tuple[Input, ...]:
        words = vocabulary if size == "full" else SMALL_VOCABULARY
        shape = ("batch", "seq")
        known = {
            "attention_mask": Input("attention_mask", shape, "int64", "mask"),
            "token_type_ids": Input("token_type_ids", shape, "int64", "ids", 0, 2),
        }
        return (Input("input_ids", shape, "int64", "ids", 0, words), *(known[name] for name in more))

    return inputs


SMALL_VOCABULARY = 96


def _one_image(size: Size) -> Mapping[str, int]:
    return {"batch": 1}


def _one_sentence(size: Size) -> Mapping[str, int]:
    return {"batch": 1, "seq": 128 if size == "full" else 17}


def _resnet50(size: Size) -> torch.nn.Module:
    from timm.models.resnet import Bottleneck, ResNet

    if size == "full":
        return ResNet(Bottleneck, (3, 4, 6, 3))
    return ResNet(Bottleneck, (1, 1, 1, 1), num_classes=10, stem_width=8, channels=(4, 4, 6, 6))


def _mobilenet_v3(size: Size) -> torch.nn.Module:
    from functools import partial

    from torchvision.models import mobilenet_v3_large
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    if size == "full":
        return mobilenet_v3_large(weights=None)
    row = partial(InvertedResidualConfig, dilation=1, width_mult=1.0)
    settings = [
        row(8, 3, 8, 8, True, "RE", 2),
        row(8, 3, 24, 12, False, "RE", 2),
        row(12, 5, 24, 12, True, "HS", 2),
        row(12, 5, 32, 12, True, "HS", 1),
    ]
    return MobileNetV3(settings, last_channel=40, num_classes=10)


def _efficientnet_b0(size: Size) -> torch.nn.Module:
    from torchvision.models import efficientnet_b0
    from torchvision.models.efficientnet import EfficientNet, MBConvConfig

    if size == "full":
        return efficientnet_b0(weights=None)
    settings = [
        MBConvConfig(1, 3, 1, 8, 8, 1),
        MBConvConfig(4, 3, 2, 8, 12, 2),
        MBConvConfig(4, 5, 2, 12, 16, 1),
    ]
    return EfficientNet(settings, dropout=0.2, last_channel=40, num_classes=10)


def _convnext_tiny(size: Size) -> torch.nn.Module:
    from timm.models.convnext import ConvNeXt

    if size == "full":
        return ConvNeXt()  # its defaults are the tiny model
    return ConvNeXt(depths=(1, 1, 2, 1), dims=(8, 8, 12, 16), num_classes=10)


def _vit_b16(size: Size) -> torch.nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    if size == "full":
        return VisionTransformer()  # its defaults are ViT-B/16
    return VisionTransformer(img_size=24, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=10)


def _swin_t(size: Size) -> torch.nn.Module:
    from torchvision.models import SwinTransformer, swin_t

    if size == "full":
        return swin_t(weights=None)
    return SwinTransformer(
        [4, 4], embed_dim=8, depths=[2, 1], num_heads=[1, 2], window_size=[4, 4], mlp_ratio=2.0, num_classes=10
    )


def _bert_base(size: Size) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    if size == "full":
        return BertModel(BertConfig())
    return BertModel(
        BertConfig(
            vocab_size=SMALL_VOCABULARY,
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            max_position_embeddings=64,
        )
    )


def _distilbert(size: Size) -> torch.nn.Module:
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    if size == "full":
        return DistilBertForSequenceClassification(DistilBertConfig())
    return DistilBertForSequenceClassification(
        DistilBertConfig(
            vocab_size=SMALL_VOCABULARY, dim=24, n_layers=2, n_heads=2, hidden_dim=48, max_position_embeddings=64
        )
    )


def _gpt2(size: Size) -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    if size == "full":
        return GPT2LMHeadModel(GPT2Config(use_cache=False))
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=SMALL_VOCABULARY,
            n_positions=64,
            n_embd=24,
            n_layer=2,
            n_head=2,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _sd15_unet(size: Size) -> torch.nn.Module:
    from models.diffusion import unet

    return unet(size == "small")


def _sd15_vae(size: Size) -> torch.nn.Module:
    from models.diffusion import decoder

    return decoder(size == "small")


def _denoising(size: Size) -> tuple[Input, ...]:
    side, tokens, context = (64, 77, 768) if size == "full" else (8, 5, 10)
    return (
        Input("sample", ("batch", 4, side, side)),
        Input("timestep", ("batch",), "int64", "ids", 0, 1000),
        Input("encoder_hidden_states", ("batch", tokens, context)),
    )


def _latent(size: Size) -> tuple[Input, ...]:
    side = 64 if size == "full" else 6
    return (Input("latent", ("batch", 4, side, side)),)


def _guided(size: Size) -> Mapping[str, int]:
    return {"batch": 2}  # with and without the text


_LOGITS = ("logits",)

CATALOG: tuple[Architecture, ...] = (
    Architecture("resnet50", "timm", _resnet50, _image(224, 64), _one_image, _LOGITS),
    Architecture("mobilenet_v3", "torchvision", _mobilenet_v3, _image(224, 64), _one_image, _LOGITS),
    Architecture("efficientnet_b0", "torchvision", _efficientnet_b0, _image(224, 64), _one_image, _LOGITS),
    Architecture("convnext_tiny", "timm", _convnext_tiny, _image(224, 64), _one_image, _LOGITS),
    Architecture("vit_b16", "timm", _vit_b16, _image(224, 24), _one_image, _LOGITS),
    Architecture("swin_t", "torchvision", _swin_t, _image(224, 32), _one_image, _LOGITS),
    Architecture(
        "bert_base",
        "transformers",
        _bert_base,
        _text(30522, "attention_mask", "token_type_ids"),
        _one_sentence,
        ("last_hidden_state", "pooler_output"),
    ),
    Architecture("distilbert", "transformers", _distilbert, _text(30522, "attention_mask"), _one_sentence, _LOGITS),
    Architecture("gpt2", "transformers", _gpt2, _text(50257, "attention_mask"), _one_sentence, _LOGITS),
    Architecture("sd15_unet", "models/diffusion.py", _sd15_unet, _denoising, _guided, ("noise",)),
    Architecture("sd15_vae", "models/diffusion.py", _sd15_vae, _latent, _one_image, ("image",)),
)


def find(name: str) -> Architecture:
    """The architecture of that name; KeyError lists the names there are."""
    for architecture in CATALOG:
        if architecture.name == name:
            return architecture
    raise KeyError(f"no architecture {name!r} in the catalog: {', '.join(a.name for a in CATALOG)}")
