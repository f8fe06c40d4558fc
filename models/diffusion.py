"""Stable Diffusion 1.5's denoising network and image decoder, in plain torch.

The architecture is that of Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models" (2022), in the
sizes of the published version 1.5: 860 and 50 million weights. `UNet` predicts the noise in a latent image, given the
time step and the embedding of a text; `Decoder` turns a latent image into one of eight times its width and height.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention, silu


@dataclass(frozen=True, slots=True)
class UNetSizes:
    """channels by resolution, the finest first; `context` is the width of a text's tokens."""

    channels: tuple[int, ...] = (320, 640, 1280, 1280)
    layers: int = 2
    heads: int = 8
    context: int = 768
    groups: int = 32
    latent: int = 4


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """channels by resolution, the coarsest (the latent image's) first."""

    channels: tuple[int, ...] = (512, 512, 256, 128)
    layers: int = 3
    groups: int = 32
    latent: int = 4
    image: int = 3


class Residual(nn.Module):
    """norm, silu, conv, twice, beside a skip; the time step's embedding is added between the two."""

    def __init__(self, before: int, after: int, groups: int, time: int | None, epsilon: float) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, before, eps=epsilon)
        self.conv1 = nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(time, after) if time is not None else None
        self.norm2 = nn.GroupNorm(groups, after, eps=epsilon)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        """x (N, C, H, W), time (N, T) -> (N, K, H, W)."""
        y = self.conv1(silu(self.norm1(x)))
        if self.time is not None:
            assert time is not None
            y = y + self.time(silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(silu(self.norm2(y)))


class Attention(nn.Module):
    """Multi-head attention of x (N, S, C) to a context (N, T, D), or to itself."""

    def __init__(self, width: int, context: int, heads: int, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=bias)
        self.to_k = nn.Linear(context, width, bias=bias)
        self.to_v = nn.Linear(context, width, bias=bias)
        self.to_out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """(N, S, C)."""
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for y in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        return self.to_out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """GEGLU: a linear layer's one half, gated by the GELU of its other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, 8 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, S, C)."""
        value, gate = self.proj(x).chunk(2, dim=-1)
        return self.out(value * gelu(gate))


class Transformer(nn.Module):
    """Self-attention, attention to the text and a feed-forward layer over the pixels of an image."""

    def __init__(self, width: int, sizes: UNetSizes) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(sizes.groups, width, eps=1e-6)
        self.proj_in = nn.Conv2d(width, width, 1)
        self.norm1 = nn.LayerNorm(width)
        self.attn1 = Attention(width, width, sizes.heads)
        self.norm2 = nn.LayerNorm(width)
        self.attn2 = Attention(width, sizes.context, sizes.heads)
        self.norm3 = nn.LayerNorm(width)
        self.ff = FeedForward(width)
        self.proj_out = nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """x (N, C, H, W), context (N, T, D) -> (N, C, H, W)."""
        y = self.proj_in(self.norm(x))
        size = y.shape[2:]
        y = y.flatten(2).transpose(1, 2)
        z = self.norm1(y)
        y = self.attn1(z, z) + y
        y = self.attn2(self.norm2(y), context) + y
        y = self.ff(self.norm3(y)) + y
        return self.proj_out(y.transpose(1, 2).unflatten(2, size)) + x


class Upsample(nn.Module):
    """Twice the width and height, the nearest pixel's value, then a convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) -> (N, C, 2 H, 2 W)."""
        return self.conv(interpolate(x, scale_factor=2.0, mode="nearest"))


class UNet(nn.Module):
    """The noise in `sample` (N, latent, H, W) at `timestep` (N,), told a text's tokens (N, T, context)."""

    def __init__(self, sizes: UNetSizes) -> None:
        super().__init__()
        first, time = sizes.channels[0], 4 * sizes.channels[0]
        self.first = first
        self.time1 = nn.Linear(first, time)
        self.time2 = nn.Linear(time, time)
        self.conv_in = nn.Conv2d(sizes.latent, first, 3, padding=1)

        def residual(before: int, after: int) -> Residual:
            return Residual(before, after, sizes.groups, time, 1e-5)

        def transformer(width: int, level: int) -> nn.Module | None:
            return Transformer(width, sizes) if level < len(sizes.channels) - 1 else None

        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        width, skips = first, [first]
        for level, after in enumerate(sizes.channels):
            for _ in range(sizes.layers):
                self.down.append(_Stage(residual(width, after), transformer(after, level)))
                width = after
                skips.append(width)
            if level < len(sizes.channels) - 1:
                self.down.append(_Stage(nn.Conv2d(width, width, 3, stride=2, padding=1)))
                skips.append(width)
        self.mid1, self.mid, self.mid2 = residual(width, width), Transformer(width, sizes), residual(width, width)
        for level, after in reversed(list(enumerate(sizes.channels))):
            for layer in range(sizes.layers + 1):
                last = layer == sizes.layers and level > 0
                up = Upsample(after) if last else None
                self.up.append(_Stage(residual(width + skips.pop(), after), transformer(after, level), up))
                width = after
        self.norm_out = nn.GroupNorm(sizes.groups, width, eps=1e-5)
        self.conv_out = nn.Conv2d(width, sizes.latent, 3, padding=1)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, encoder_hidden_states: torch.Tensor
    ) -> torch.Tensor:
        """(N, latent, H, W)."""
        time = self.time2(silu(self.time1(_waves(timestep, self.first).to(sample.dtype))))
        x = self.conv_in(sample)
        skips = [x]
        for stage in self.down:
            x = stage(x, time, encoder_hidden_states)
            skips.append(x)
        x = self.mid2(self.mid(self.mid1(x, time), encoder_hidden_states), time)
        for stage in self.up:
            x = stage(torch.cat([x, skips.pop()], dim=1), time, encoder_hidden_states)
        return self.conv_out(silu(self.norm_out(x)))


class _Stage(nn.Module):
    """A residual block or a convolution, then a transformer and an upsampling where there are."""

    def __init__(self, block: nn.Module, transformer: nn.Module | None = None, up: nn.Module | None = None) -> None:
        super().__init__()
        self.block, self.transformer, self.upsample = block, transformer, up

    def forward(self, x: torch.Tensor, time: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        x = self.block(x, time) if isinstance(self.block, Residual) else self.block(x)
        if self.transformer is not None:
            x = self.transformer(x, context)
        return x if self.upsample is None else self.upsample(x)


def _waves(timestep: torch.Tensor, width: int) -> torch.Tensor:
    """(N,) -> (N, width): cosines, then sines, of wavelengths from 2 pi to 20000 pi."""
    half = width // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float32, device=timestep.device) * (-math.log(10000) / half))
    angles = timestep.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class Decoder(nn.Module):
    """The image (N, 3, 8 H, 8 W) of a latent image (N, latent, H, W)."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        width = sizes.channels[0]

        def residual(before: int, after: int) -> Residual:
            return Residual(before, after, sizes.groups, None, 1e-6)

        self.post_quant = nn.Conv2d(sizes.latent, sizes.latent, 1)
        self.conv_in = nn.Conv2d(sizes.latent, width, 3, padding=1)
        self.mid1, self.mid2 = residual(width, width), residual(width, width)
        self.norm = nn.GroupNorm(sizes.groups, width, eps=1e-6)
        self.attention = Attention(width, width, 1, bias=True)
        self.up = nn.ModuleList()
        for level, after in enumerate(sizes.channels):
            for _ in range(sizes.layers):
                self.up.append(residual(width, after))
                width = after
            if level < len(sizes.channels) - 1:
                self.up.append(Upsample(width))
        self.norm_out = nn.GroupNorm(sizes.groups, width, eps=1e-6)
        self.conv_out = nn.Conv2d(width, sizes.image, 3, padding=1)

    def forward(self, latent: torch.Tensor) -> torch.Tensor:
        """(N, image, 8 H, 8 W)."""
        x = self.mid1(self.conv_in(self.post_quant(latent)))
        y = self.norm(x).flatten(2).transpose(1, 2)
        x = self.mid2(self.attention(y, y).transpose(1, 2).unflatten(2, x.shape[2:]) + x)
        for stage in self.up:
            x = stage(x)
        return self.conv_out(silu(self.norm_out(x)))


def unet(small: bool) -> UNet:
    """Of version 1.5, or one of two resolutions whose attention heads are as narrow as they can be."""
    return UNet(UNetSizes((8, 8), layers=1, heads=2, context=10, groups=4) if small else UNetSizes())


def decoder(small: bool) -> Decoder:
    """Of version 1.5, or one of two resolutions."""
    return Decoder(DecoderSizes((12, 8), layers=1, groups=4) if small else DecoderSizes())


__all__: Sequence[str] = ("Decoder", "DecoderSizes", "UNet", "UNetSizes", "decoder", "unet")
