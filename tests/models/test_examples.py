"""The committed models, the development set's list and the inputs made for them: what the whole-model tests stand on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from models import catalog, devset, light, ocr, tiny
from models.demo import LINE
from models.inputs import KINDS, Input, from_json, make_inputs, to_json

TINY = tiny.load()


def _session(model: str | bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run(path: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = _session(str(path))
    assert [i.name for i in session.get_inputs()] == list(feed)
    return session.run(None, feed)


@pytest.mark.parametrize("model", TINY, ids=lambda m: m.name)
def test_a_committed_model_is_small_and_its_inputs_run(model: tiny.TinyModel) -> None:
    data = model.path.read_bytes()
    assert len(data) <= tiny.MAX_BYTES
    assert b"site-packages" not in data, "stack traces with paths of the exporting machine"
    onnx.checker.check_model(str(model.path), full_check=True)
    for dims in ({}, *model.others):
        outputs = _run(model.path, model.make_inputs(dims))
        assert len(outputs) == len(model.outputs)
        for output in outputs:
            assert np.isfinite(output).all() and float(output.std()) > 0.01, "an output that says nothing"


def test_the_manifest_and_the_folder_agree() -> None:
    assert sorted(p.stem for p in tiny.FOLDER.glob("*.onnx")) == [m.name for m in TINY]


def test_every_architecture_is_there_from_both_exporters_static_and_dynamic() -> None:
    kinds = Counter((m.architecture, m.exporter, m.dynamic) for m in TINY if not m.variant)
    wanted = {(a.name, e, d) for a in catalog.CATALOG for e in ("dynamo", "torchscript") for d in (False, True)}
    assert set(kinds) == wanted


@pytest.mark.parametrize("architecture", [a.name for a in catalog.CATALOG])
def test_exports_of_one_architecture_compute_the_same(architecture: str) -> None:
    results = [_run(m.path, m.make_inputs())[0] for m in TINY if m.architecture == architecture]
    for result in results[1:]:
        np.testing.assert_allclose(result.astype(np.float32), results[0].astype(np.float32), atol=0.03, rtol=0.03)


def test_the_development_set_has_a_digest_for_each_file() -> None:
    listed = {line.split()[1] for line in devset.DIGESTS.read_text().splitlines()}
    files = {
        f"{m.wheel.package}-{m.wheel.version}/{path}" for m in devset.MODELS if m.wheel for path in (m.path, *m.extra)
    }
    assert listed == files
    assert max(Counter(m.name for m in devset.MODELS).values()) == 1


@pytest.mark.parametrize("model", devset.MODELS, ids=lambda m: m.name)
def test_every_dim_of_the_development_set_has_a_value(model: devset.DevModel) -> None:
    for dims in ({}, *model.others):
        assert set(dims) <= set(model.dims)
        shapes = (
            {name: array.shape for name, array in model.make_inputs(dims).items()} if not dims else model.shapes(dims)
        )
        assert shapes == model.shapes(dims)


def test_light_networks_with_drawn_weights_tell_channels_apart() -> None:
    model = devset.find("light_squeezenet")
    plain = onnx.load(model.fetch())
    drawn = light.with_weights(plain)
    assert [n.op_type for n in drawn.graph.node] == [
        n.op_type for n in plain.graph.node if n.op_type != "ConstantOfShape"
    ]
    (output,) = _session(drawn.SerializeToString()).run(None, model.make_inputs())
    assert len(np.unique(output)) > 500  # the last ReLU makes some of the 1000 equal


def test_inputs_fit_their_kind() -> None:
    dims = {"batch": 4, "seq": 11}
    cases = {
        "ids": Input("ids", ("batch", "seq"), "int64", "ids", 5, 9),
        "mask": Input("mask", ("batch", "seq"), "int64", "mask"),
        "dim": Input("dim", ("batch",), "int64", "dim", of="seq"),
        "constant": Input("constant", (), "int64", "constant", 16000),
        "image": Input("image", ("batch", 3, 20, 30), kind="image", low=-2, high=2),
        "text": Input("text", ("batch", 3, 48, 100), kind="text"),
        "uniform": Input("uniform", (7,), kind="uniform", low=-3, high=-1),
        "normal": Input("normal", (1000,), "float16"),
    }
    assert set(cases) == set(KINDS)
    made = make_inputs(cases.values(), dims)
    again = make_inputs(map(from_json, map(to_json, cases.values())), dims)
    for name, array in made.items():
        assert array.shape == cases[name].resolve(dims) and array.dtype == cases[name].dtype
        np.testing.assert_array_equal(array, again[name])
    assert set(np.unique(made["ids"])) <= {5, 6, 7, 8}
    assert made["mask"][0].all() and (np.diff(made["mask"], axis=1) <= 0).all() and made["mask"].any(axis=1).all()
    assert (made["dim"] == 11).all() and made["constant"] == 16000
    assert -2 <= made["image"].min() < made["image"].max() <= 2
    assert made["text"].std() > 0.1
    assert made["uniform"].min() >= -3 and made["uniform"].max() < -1
    assert 0.8 < made["normal"].astype(np.float32).std() < 1.2


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind 'noise'"):
        Input("x", (1,), kind="noise")


def test_the_line_of_the_demo_becomes_a_padded_input() -> None:
    image = ocr.read_image(LINE)
    assert image.ndim == 3 and image.shape[2] == 3
    x = ocr.to_input(image, 480)
    width = round(image.shape[1] * ocr.HEIGHT / image.shape[0])
    assert x.shape == (1, 3, 48, 480)
    assert np.abs(x).max() <= 1 and (x[..., width:] == 0).all() and (x[..., :width] != 0).any()


def test_ctc_drops_blanks_and_repeats() -> None:
    characters = ["", "a", "b", " "]
    steps = np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 3, 0]]
    assert ocr.decode(steps, characters) == ("aab", 1.0)
    assert ocr.decode(np.eye(4)[[0, 0]], characters) == ("", 0.0)
