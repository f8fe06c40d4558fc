"""PP-OCRv4's text recognition around the network: an image of one line to its input, its output to text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from models.inputs import Array

HEIGHT = 48  # pixels, what the network was trained on


def read_pgm(path: Path) -> Array:
    """A binary PGM or PPM file as (H, W, 3) uint8. ValueError for anything else."""
    data = path.read_bytes()
    fields: list[bytes] = []
    at = 0
    while len(fields) < 4:
        line_end = data.index(b"\n", at)
        fields += data[at:line_end].split(b"#")[0].split()
        at = line_end + 1
    kind, width, height, top = fields
    if kind not in (b"P5", b"P6") or top != b"255":
        raise ValueError(f"{path}: not a binary 8-bit PGM or PPM file")
    channels = 1 if kind == b"P5" else 3
    pixels = np.frombuffer(data, np.uint8, int(width) * int(height) * channels, at)
    return np.repeat(pixels.reshape(int(height), int(width), channels), 3 // channels, axis=2)


def read_image(path: Path) -> Array:
    """An image file as (H, W, 3) uint8; anything but PGM and PPM needs Pillow."""
    if path.suffix in (".pgm", ".ppm"):
        return read_pgm(path)
    from PIL import Image

    return np.asarray(Image.open(path).convert("RGB"))


def to_input(image: Array, width: int) -> Array:
    """(H, W, 3) uint8 to (1, 3, 48, width) float32 in -1..1: scaled to the height, padded on the right with 0."""
    scaled = min(width, round(image.shape[1] * HEIGHT / image.shape[0]))
    line = _resize(image.astype(np.float32), HEIGHT, scaled) / 127.5 - 1
    out = np.zeros((1, 3, HEIGHT, width), np.float32)
    out[0, :, :, :scaled] = line.transpose(2, 0, 1)
    return out


def _resize(image: Array, height: int, width: int) -> Array:
    """Bilinear, pixel centres aligned; (H, W, C) to (height, width, C)."""

    def blend(values: Array, size: int, axis: int) -> Array:
        old = values.shape[axis]
        if old == size:
            return values
        at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if a == axis else 1 for a in range(values.ndim)])
        high = np.minimum(low + 1, old - 1)
        return np.asarray(values.take(low, axis) * (1 - part) + values.take(high, axis) * part)

    return blend(blend(image, height, 0), width, 1).astype(np.float32)


def alphabet(model: Path) -> list[str]:
    """The network's classes in order: the blank of CTC, the characters of the file's metadata, the space."""
    import onnx

    metadata = {p.key: p.value for p in onnx.load(model).metadata_props}
    return ["", *metadata["character"].split("\n"), " "]


def decode(scores: Array, characters: list[str]) -> tuple[str, float]:
    """Greedy CTC: (steps, classes) probabilities to the text and the mean probability of its characters."""
    best = scores.argmax(axis=1)
    kept = (best != 0) & np.concatenate(([True], best[1:] != best[:-1]))
    if not kept.any():
        return "", 0.0
    return "".join(characters[k] for k in best[kept]).strip(), float(scores.max(axis=1)[kept].mean())
