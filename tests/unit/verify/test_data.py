"""Inputs that a user gives: what is found, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from aitc.errors import AitcError, Exit
from aitc.importer.values import Bound
from aitc.ir import dtype as dt
from aitc.ir.dim import symbol
from aitc.schedule.plan.plan import DimSource, Port
from aitc.verify.data import Given, asked_sizes, read_given

N = symbol("n", 1)
PORTS = (Port("x/in:0", dt.F32, (N, 4), ""), Port("ids", dt.I64, (N + 1,), ""), Port("half", dt.BF16, (2,), ""))
DIMS = (DimSource("n", "n", 0, 0, 1, 8),)
X, IDS, HALF = np.ones((3, 4), np.float32), np.arange(4), np.ones(2, ml_dtypes.bfloat16)


def read(files: dict[str, Path] | None = None, folder: Path | None = None) -> tuple[Given, ...]:
    return read_given(tuple((files or {}).items()), folder, PORTS, ["y"], DIMS)


def said(files: dict[str, Path] | None = None, folder: Path | None = None, code: Exit = Exit.USAGE) -> str:
    with pytest.raises(AitcError) as caught:
        read(files, folder)
    assert caught.value.exit_code is code
    return str(caught.value)


def saved(path: Path, array: np.ndarray) -> Path:
    np.save(path, array if array.dtype.isbuiltin == 1 else array.view("V2"))
    return path


def test_nothing_given() -> None:
    assert read() == ()


def test_some_files(tmp_path: Path) -> None:
    (given,) = read({"x/in:0": saved(tmp_path / "a.npy", X), "half": saved(tmp_path / "b.npy", HALF)})
    assert list(given.inputs) == ["x/in:0", "half"] and given.sizes == {"n": 3} and given.expected == {}
    assert given.inputs["half"].dtype == ml_dtypes.bfloat16


def test_a_folder_of_files_by_name(tmp_path: Path) -> None:
    for name, array in (("x_in_0", X), ("ids", IDS), ("y", X)):
        saved(tmp_path / f"{name}.npy", array)
    (given,) = read(folder=tmp_path)
    assert list(given.inputs) == ["x/in:0", "ids"] and list(given.expected) == ["y"]
    saved(tmp_path / "idz.npy", IDS)
    assert "no input 'idz'" in said(folder=tmp_path) and "did you mean ids?" in said(folder=tmp_path)


def test_onnx_test_data(tmp_path: Path) -> None:
    for n in range(2):
        place = tmp_path / f"test_data_set_{n}"
        place.mkdir()
        for name, array in (("input_0", X + n), ("input_1", IDS), ("output_0", X)):
            (place / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    first, second = read(folder=tmp_path)
    assert (first.inputs["x/in:0"] == 1).all() and (second.inputs["x/in:0"] == 2).all()
    assert list(second.expected) == ["y"] and second.where.endswith("test_data_set_1")
    assert read(folder=place)[0].sizes == {"n": 3}
    (place / "input_7.pb").write_bytes(b"")
    assert "the model has 3 inputs" in said(folder=place) or "cannot be read" in said(folder=place)
    (place / "input_0.pb").write_bytes(b"no tensor at all")
    assert "cannot be read as a tensor of ONNX" in said(folder=place, code=Exit.IO)


def test_inputs_that_are_constants_of_the_binary(tmp_path: Path) -> None:
    bound = (Bound("rate", 1, np.array(8)),)
    for i, array in enumerate((X, np.array(8), IDS, HALF)):
        (tmp_path / f"input_{i}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    (given,) = read_given((), tmp_path, PORTS, ["y"], DIMS, bound)
    assert sorted(given.inputs) == ["half", "ids", "x/in:0"] and given.sizes == {"n": 3}
    np.testing.assert_array_equal(given.inputs["ids"], IDS)
    (tmp_path / "input_1.pb").write_bytes(onnx.numpy_helper.from_array(np.array(16)).SerializeToString())
    with pytest.raises(AitcError, match="'rate' is a constant of the binary, 8, and its file holds something else"):
        read_given((), tmp_path, PORTS, ["y"], DIMS, bound)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    wrong = said({
        "x": saved(tmp_path / "x.npy", X),
        "x/in:0": saved(tmp_path / "shape.npy", X[:, :3]),
        "ids": saved(tmp_path / "type.npy", IDS.astype(np.int32)),
        "half": saved(tmp_path / "rank.npy", HALF[None]),
    })  # fmt: skip
    assert "--input x: the model has no such input" in wrong
    assert "input 'x/in:0' is [n, 4], and its file holds [3, 3]" in wrong
    assert "input 'ids' is i64, and its file holds int32" in wrong and "astype('int64')" in wrong
    assert "input 'half' is [2], and its file holds [1, 2]" in wrong


def test_sizes_that_do_not_fit_each_other_or_their_bounds(tmp_path: Path) -> None:
    x, ids = saved(tmp_path / "x.npy", X), saved(tmp_path / "ids.npy", IDS[:2])
    assert "input 'ids' is [n + 1], and its file holds [2]" in said({"x/in:0": x, "ids": ids})
    large = saved(tmp_path / "large.npy", np.ones((9, 4), np.float32))
    assert "dim n is 9, and may be 1 to 8" in said({"x/in:0": large})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_text("no array")
    assert "bad.npy cannot be read as .npy" in said({"ids": tmp_path / "bad.npy"}, code=Exit.IO)
    assert "none.npy cannot be read" in said({"ids": tmp_path / "none.npy"}, code=Exit.IO)
    assert "is not a folder" in said(folder=tmp_path / "none", code=Exit.IO)
    assert "holds no input of the model" in said(folder=tmp_path)


def test_sizes_that_are_asked_for() -> None:
    dims = (DimSource("past", "past", 0, 0, 1, 64), DimSource("total_", "total len", 1, 0, 1, 64, 2))
    assert asked_sizes([("past", 3), ("total len", 8)], dims) == ({"past": 3, "total_": 8}, ())
    fixed, (rule,) = asked_sizes([("total len", "past + 1")], dims)
    assert fixed == {} and (str(rule.less), str(rule.more), rule.equal) == ("total_", "past + 1", True)
    with pytest.raises(AitcError) as caught:
        asked_sizes([("pasd", 3), ("past", 65), ("total_", (1, 2)), ("past", "sec + 1")], dims)
    text = str(caught.value)
    assert "no symbolic dim 'pasd'" in text and "did you mean past?" in text and "no symbolic dim 'sec'" in text
    assert "--dim past=65: it may be 1 to 64" in text and "--dim total_=1..2: one size is needed" in text
