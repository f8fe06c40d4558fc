"""A compiled model as its users meet it: Python, the executable, C and C++."""

from __future__ import annotations

import copy
import ctypes
import json
import os
import pickle
import resource
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_plans import expected, scale_then_shift
from product import isa_of_tests

import aitc
from aitc import abi, dlpack
from aitc.build.cmake import BuildOptions, build
from aitc.build.output import staged
from aitc.build.toolchain import find_toolchain
from aitc.emit.project import emit
from aitc.errors import AitcError, Exit
from aitc.ir.dtype import BF16, F32, F64
from aitc.schedule.plan.plan import Space

HERE = Path(__file__).parent
PLAN = scale_then_shift()
OPTIONS = BuildOptions(isas=(isa_of_tests(),), use_cache=False)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model ``hand``, and ``other`` with other weights, in one folder."""
    folder = tmp_path_factory.mktemp("models") / "out"
    toolchain = find_toolchain("cpu")
    for plan in (PLAN, scale_then_shift("other", seed=1)):
        with staged(folder) as stage:
            build(plan, emit(plan), stage, toolchain, OPTIONS)
    return folder


@pytest.fixture
def model(out: Path) -> aitc.runtime.Model:
    return aitc.load(out / "libhand.so")


def x_of(batch: int = 3) -> np.ndarray:
    return np.random.default_rng(batch).normal(size=(batch, 4)).astype(np.float32)


IDS = np.array([41])


def run(*command: object, code: int = 0, **more: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == code, done.stdout + done.stderr
    return done


# ---- Python


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_arrays_in_order_and_by_name(model: aitc.runtime.Model, batch: int) -> None:
    x = x_of(batch)
    for results in (model(x, IDS), model(**{"token/ids:0": IDS, "x": x}), model(x, **{"token/ids:0": IDS})):
        for got, want in zip(results, expected(PLAN, x, IDS), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_the_model_is(model: aitc.runtime.Model) -> None:
    assert [(p.name, p.dtype.name, p.shape, p.use) for p in model.inputs] == [
        ("x", "f32", ("batch", 4), ""),
        ("token/ids:0", "i64", (1,), "ids:100"),
    ]
    assert [(p.name, p.shape) for p in model.outputs] == [("y", ("batch", 4)), ("n", (1,)), ("x again", ("batch", 4))]
    assert [(d.name, d.lo, d.hi, d.hint) for d in model.dims] == [("batch", 1, 8, 2)]
    assert model.launches == ("multiply_0", "add_1", "increment_2") and model.api == "cpu"
    assert model.output_shapes((5, 4), (1,)) == [(5, 4), (1,), (5, 4)]
    assert repr(model).startswith("<hand(x: f32[batch, 4], token/ids:0: i64[1]) -> (y: f32[batch, 4], ")


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((x_of(),), "hand takes 2 inputs, given 1; they are x, token/ids:0"),
        ((x_of(), IDS, IDS), "takes 2 inputs, given 3"),
        (
            (x_of()[:, :3], IDS),
            'input "x": expected f32[batch, 4] (batch in 1..8), given f32[3, 3]; axis 1 has to be 4 here',
        ),
        ((x_of().astype(np.float64), IDS), "given f64[3, 4]"),
        ((x_of(9), IDS), "given f32[9, 4]; axis 0 (batch) is 9"),
        ((x_of()[0], IDS), "given f32[4]"),
        ((x_of()[:0], IDS), "axis 0 (batch) is 0"),
        ((x_of(), IDS.astype(np.int32)), 'input "token/ids:0": expected i64[1], given i32[1]'),
        ((None, IDS), '"x": a NoneType cannot be used as a tensor: it is missing'),
        ((object(), IDS), '"x": a object cannot be used as a tensor'),
        ((np.array([["a"] * 4]), IDS), "<U1 are not supported"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_name(
    model: aitc.runtime.Model, arrays: tuple[object, ...], text: str
) -> None:
    with pytest.raises(AitcError) as e:
        model(*arrays)
    assert text in str(e.value) and e.value.exit_code is Exit.USAGE


def test_names_that_do_not_fit(model: aitc.runtime.Model) -> None:
    for arrays, names, text in (
        ((x_of(),), {"z": IDS}, "has no input z"),
        ((x_of(), IDS), {"x": IDS}, "got twice x"),
        ((x_of(),), {"x": IDS}, "got twice x"),
        ((), {"x": IDS}, "needs token/ids:0"),
    ):
        with pytest.raises(AitcError, match=text):
            model(*arrays, **names)


def test_arrays_of_any_layout(model: aitc.runtime.Model) -> None:
    x = x_of()
    wide = np.zeros((3, 8), np.float32)
    wide[:, ::2] = x
    for other in (np.asfortranarray(x), wide[:, ::2], x.astype(">f4"), x.tolist(), x[::-1][::-1]):
        np.testing.assert_allclose(model(other, IDS)[0], expected(PLAN, x, IDS)[0], rtol=1e-6)


def test_many_threads_share_a_model(model: aitc.runtime.Model) -> None:
    wrong: list[object] = []

    def work(batch: int) -> None:
        x = x_of(batch)
        want = expected(PLAN, x, IDS)[0]
        for _ in range(200):
            if not np.allclose(model(x, IDS)[0], want, rtol=1e-6):
                wrong.append(batch)
        try:
            model(x[:, :2], IDS)
        except AitcError as e:
            if f"given f32[{batch}, 2]" not in str(e):  # the text is the thread's own
                wrong.append(str(e))

    threads = [threading.Thread(target=work, args=(b,)) for b in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_two_models_and_one_twice(out: Path) -> None:
    x = x_of()
    with aitc.load(out / "libhand.so") as a, aitc.load(out / "libother.so") as b, aitc.load(out / "libhand.so") as c:
        np.testing.assert_array_equal(a(x, IDS)[0], c(x, IDS)[0])
        np.testing.assert_allclose(b(x, IDS)[0], expected(scale_then_shift(seed=1), x, IDS)[0], rtol=1e-6)


def test_times(model: aitc.runtime.Model) -> None:
    times = model.bench(5, 2)
    assert len(times) == 5 and all(0 < t < 1 for t in times)
    spans = model.profile(3)
    assert [(s.run, s.launch) for s in spans] == [(run, launch) for run in range(3) for launch in range(3)]
    ends = [0.0, *(t for s in spans[:3] for t in (s.begin, s.end))]
    assert ends == sorted(ends)
    assert [s.launch for s in model.profile(2, chosen=[True, False, True])] == [0, 2, 0, 2]
    assert model.profile(0) == []
    for flags in ([True] * 2, [True] * 4):
        for timed in (model.bench, model.profile):
            with pytest.raises(AitcError, match=rf"3 launches, given {len(flags)} flags"):
                timed(2, chosen=flags)


def test_closed_is_closed(model: aitc.runtime.Model) -> None:
    model.close()
    model.close()
    with pytest.raises(AitcError, match="closed"):
        model(x_of(), IDS)


def test_a_copy_is_a_model_of_its_own(model: aitc.runtime.Model) -> None:
    want = model(x_of(), IDS)[0]
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other(x_of(), IDS)[0], want)
        other.close()
    np.testing.assert_array_equal(model(x_of(), IDS)[0], want)


def test_random_inputs_fit(model: aitc.runtime.Model) -> None:
    x, ids = model.random_inputs(seed=3, batch=5)
    assert x.shape == (5, 4) and 0 <= ids[0] < 100
    model(x, ids)


def test_no_model_there(out: Path, tmp_path: Path) -> None:
    (tmp_path / "libx.so").write_text("no library")
    shutil.copy("/proc/self/exe", tmp_path / "python")
    for path, text in (
        (tmp_path / "none", "does not exist"),
        (out, "not one compiled library, but libhand.so, libother.so"),
        (tmp_path / "libx.so", "not a compiled model"),
    ):
        with pytest.raises(AitcError, match=text) as e:
            aitc.load(path)
        assert e.value.exit_code is Exit.IO
    with pytest.raises(AitcError, match="no cpu device 1"):
        aitc.load(out / "libhand.so", device=1)


def test_a_library_of_an_older_aitc(tmp_path: Path) -> None:
    """Its table of functions is shorter; or it counts otherwise."""
    for version, size, text in ((1, ctypes.sizeof(abi.Model) - 8, "made by an older aitc"), (7, 4096, "ABI version 7, this aitc speaks 1")):
        source = f"static const unsigned t[64] = {{{version}, {size}}}; const void* aitc_model_v1(void) {{ return t; }}"
        library = tmp_path / f"libold{version}.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        with pytest.raises(AitcError, match=text) as e:
            aitc.load(library)
        assert e.value.exit_code is Exit.IO and e.value.diagnostics[0].help == "compile the model again"


def test_dlpack_of_other_frameworks(model: aitc.runtime.Model) -> None:
    class Foreign:
        """An array that speaks DLPack and nothing else."""

        def __init__(self, array: np.ndarray):
            self.array = array

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

        def __dlpack__(self, **more: object) -> object:
            return self.array.__dlpack__(**more)

    class Broken(Foreign):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("Unknown device type meta for Dlpack")

        def __dlpack__(self, **more: object) -> object:
            raise RuntimeError("it has no data")

    x = x_of()
    with pytest.raises(AitcError, match='"x": a Broken cannot be used as a tensor: Unknown device type') as e:
        model(Broken(x), IDS)
    assert e.value.exit_code is Exit.USAGE
    np.testing.assert_allclose(model(Foreign(x), Foreign(IDS))[0], expected(PLAN, x, IDS)[0], rtol=1e-6)


def test_capsules_go_out_and_come_back() -> None:
    data = np.arange(6, dtype=np.float32).reshape(2, 3)

    class Owner:
        def __dlpack_device__(self) -> tuple[int, int]:
            return dlpack.CPU, 0

        def __dlpack__(self, **_: object) -> object:
            return dlpack.export(data, data.ctypes.data, (2, 3), F32, dlpack.CPU, 0)

    before = len(dlpack._exported)
    taken = np.from_dlpack(Owner())
    np.testing.assert_array_equal(taken, data)
    view = dlpack.view(Owner())
    assert (view.address, view.shape, view.dtype, view.device_type) == (data.ctypes.data, (2, 3), F32, dlpack.CPU)
    del taken, view
    assert len(dlpack._exported) == before
    with pytest.raises(ValueError, match="contiguous"):
        dlpack.view(data.T)
    capsule = dlpack.export(data, data.ctypes.data, (3,), BF16, dlpack.CPU, 0)
    del capsule
    assert len(dlpack._exported) == before


def test_an_arena_that_is_sized_at_run_time(tmp_path: Path) -> None:
    buffers = tuple(replace(b, offset=-1) if b.space is Space.ARENA else b for b in PLAN.buffers)
    plan = replace(PLAN, buffers=buffers, arena_bytes=-1)
    build(plan, emit(plan), tmp_path, find_toolchain("cpu"), OPTIONS)
    with aitc.load(tmp_path) as model:
        for batch in (1, 8, 3):
            x = x_of(batch)
            np.testing.assert_allclose(model(x, IDS)[0], expected(PLAN, x, IDS)[0], rtol=1e-6)


# ---- the weights


def test_a_library_that_was_replaced_is_noticed(out: Path, tmp_path: Path) -> None:
    """The digest in the code and in the weights belong together."""
    data = (out / "libhand.so").read_bytes()
    swapped = data[: -len(_tail(out, "other"))] + _tail(out, "other")
    (tmp_path / "libhand.so").write_bytes(swapped)
    with pytest.raises(AitcError, match="the weights of another model") as e:
        aitc.load(tmp_path)
    assert e.value.exit_code is Exit.IO


def _tail(out: Path, name: str) -> bytes:
    return (out / f"lib{name}.so").read_bytes()[-(80 + 128) :]


def test_weights_in_a_file_beside_or_anywhere(out: Path, tmp_path: Path) -> None:
    data = (out / "libhand.so").read_bytes()
    (tmp_path / "libhand.so").write_bytes(data[: -(80 + 128)])
    with pytest.raises(AitcError, match=r"holds no weights.*hand.weights cannot be read"):
        aitc.load(tmp_path)
    (tmp_path / "hand.weights").write_bytes(_tail(out, "hand"))
    x = x_of()
    np.testing.assert_allclose(aitc.load(tmp_path)(x, IDS)[0], expected(PLAN, x, IDS)[0], rtol=1e-6)
    (tmp_path / "hand.weights").rename(tmp_path / "w")
    np.testing.assert_allclose(
        aitc.load(tmp_path, weights=tmp_path / "w")(x, IDS)[0], expected(PLAN, x, IDS)[0], rtol=1e-6
    )
    (tmp_path / "w").write_bytes(b"")
    with pytest.raises(AitcError, match="not a file of weights"):
        aitc.load(tmp_path, weights=tmp_path / "w")


def test_a_relative_path_and_another_working_directory(out: Path) -> None:
    script = """
import ctypes, os
library = ctypes.CDLL("./libhand.so")
os.chdir("/")
handle = ctypes.c_void_p()
assert library.hand_create(0, ctypes.byref(handle)) == 0
"""
    run(sys.executable, "-c", script, cwd=out)


# ---- the library


def test_it_needs_the_c_library_alone(out: Path) -> None:
    needed = [
        line.split("[")[1].rstrip("]")
        for line in run("readelf", "-d", out / "libhand.so").stdout.splitlines()
        if "NEEDED" in line
    ]
    assert all(n.startswith(("libc.so", "libm.so", "libdl.so", "libpthread.so", "ld-linux")) for n in needed), needed


def test_it_exports_its_interface_alone(out: Path) -> None:
    names = {line.split()[-1] for line in run("nm", "-D", "--defined-only", out / "libhand.so").stdout.splitlines()}
    functions = (
        "abi_version",
        "model",
        "last_error",
        "create",
        "create_with_weights",
        "destroy",
        "output_shapes",
        "run",
        "run_sized",
    )
    assert names == {"aitc_model_v1", *(f"hand_{f}" for f in functions)}


def test_null_pointers_are_errors_with_a_text(out: Path) -> None:
    library = ctypes.CDLL(str(out / "libhand.so"))
    library.hand_last_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    assert (
        library.hand_create(0, None) == abi.BAD_ARGUMENT
        and library.hand_last_error() == b"the place for the instance is null"
    )
    assert library.hand_create(0, ctypes.byref(handle)) == abi.OK
    assert (
        library.hand_run(None, None, None, None) == abi.BAD_ARGUMENT
        and b"instance is null" in library.hand_last_error()
    )
    assert (
        library.hand_run(handle, None, None, None) == abi.BAD_ARGUMENT
        and b"array of inputs is null" in library.hand_last_error()
    )
    inputs = (abi.Tensor * 2)()
    inputs[0].rank, inputs[0].dtype = 2, 1
    assert (
        library.hand_run(handle, inputs, None, None) == abi.BAD_ARGUMENT
        and b'input "x": its shape is null' in library.hand_last_error()
    )
    inputs[0].shape, inputs[1].shape = (ctypes.c_int64 * 2)(1, 4), (ctypes.c_int64 * 1)(1)
    inputs[1].rank, inputs[1].dtype = 1, 7
    assert (
        library.hand_run(handle, inputs, None, None) == abi.BAD_ARGUMENT
        and b'input "x": its data is null' in library.hand_last_error()
    )
    inputs[0].memory = 7
    assert library.hand_run(handle, inputs, None, None) == abi.BAD_ARGUMENT
    assert library.hand_last_error() == b'input "x": memory 7 is no aitc_memory'
    inputs[0].memory = abi.MEMORY_HOST
    sizes = (ctypes.c_int64 * 5)()
    assert library.hand_output_shapes(inputs, sizes) == abi.OK and list(sizes) == [1, 4, 1, 1, 4]
    assert library.hand_output_shapes(inputs, None) == abi.BAD_ARGUMENT
    data = (ctypes.c_float * 4)()
    inputs[0].data = inputs[1].data = ctypes.addressof(data)
    outputs = (abi.Tensor * len(PLAN.outputs))()
    outputs[0].rank, outputs[0].dtype = 3, F64.onnx
    assert library.hand_run(handle, inputs, outputs, None) == abi.BAD_INPUT
    assert b"given f64[]" in library.hand_last_error()
    library.hand_destroy(handle)
    library.hand_destroy(None)
    library.hand_destroy(handle)
    assert library.hand_run(handle, inputs, outputs, None) == abi.BAD_ARGUMENT
    assert b"was destroyed" in library.hand_last_error()


def test_sizes_that_no_memory_has(model: aitc.runtime.Model) -> None:
    table, place, here = model._table, ctypes.c_void_p(1), ctypes.create_string_buffer(8)
    most = 2**64 - 1
    for size in (most, most - 63, most - 64, most // 2, most // 2 + 1, most // 2 - 63, 2**62):
        for device in (0, -1):
            assert table.allocate(device, size, ctypes.byref(place)) == abi.OUT_OF_MEMORY
            assert b"cannot allocate" in table.last_error()
        assert size <= most // 2 or table.copy(0, here, here, size) == abi.BAD_ARGUMENT
    for device in (-2, 1, 2**31 - 1, -(2**31)):
        assert table.allocate(device, 8, ctypes.byref(place)) == abi.NO_DEVICE
        assert table.copy(device, here, here, 8) == abi.NO_DEVICE
        assert table.create(device, None, ctypes.byref(place)) == abi.NO_DEVICE and not place.value
    for size in (0, 1, 63, 64, 65, 1 << 20):
        assert table.allocate(-1, size, ctypes.byref(place)) == abi.OK and place.value % 64 == 0
        ctypes.memset(place, 1, size)
        assert table.copy(0, place, place, size) == abi.OK
        table.release(-1, place)
    assert table.allocate(0, 8, None) == abi.BAD_ARGUMENT
    assert table.copy(0, None, here, 1) == table.copy(0, here, None, 1) == abi.BAD_ARGUMENT
    assert table.copy(0, None, None, 0) == abi.OK
    table.release(0, None)


def test_tensors_that_say_what_cannot_be(model: aitc.runtime.Model) -> None:
    """Ranks, types and counts beyond everything: an error, and nothing behind the arrays is read."""
    table, handle = model._table, model._handle
    good = [(2, 1, (1, 4)), (1, 7, (1,))]
    data = ctypes.create_string_buffer(4096)

    def tensors(*rows: tuple[int, int, tuple[int, ...]]) -> ctypes.Array[abi.Tensor]:
        made = (abi.Tensor * len(rows))()
        for t, (rank, dtype, shape) in zip(made, rows, strict=True):
            t.data, t.rank, t.dtype, t.shape = ctypes.addressof(data), rank, dtype, (ctypes.c_int64 * len(shape))(*shape)
        return made

    outputs = tensors(*((0, p.dtype.onnx, ()) for p in PLAN.outputs))
    for t in outputs:
        t.shape = None
    assert table.run(handle, tensors(*good), 2, outputs, len(outputs), None) == abi.OK
    least, most = -(2**31), 2**31 - 1
    bad = [(1_000_000, 1, (1, 4)), (most, 1, (1, 4)), (-1, 1, (1, 4)), (least, 1, (1, 4)), (2, most, (1, 4)), (2, least, (1, 4)),
           (2, 0, (1, 4)), (2, 1, (-1, 4)), (2, 1, (2**62, 4)), (2, 1, (-(2**63), 4)), (2, 1, (1, 2**62))]  # fmt: skip
    for row in bad:
        given = tensors(row, good[1])
        sizes = (ctypes.c_int64 * 64)()
        assert table.output_shapes(given, 2, sizes) == abi.BAD_INPUT
        assert table.run(handle, given, 2, outputs, len(outputs), None) == abi.BAD_INPUT
        assert b'input "x": expected f32[' in table.last_error() and len(table.last_error()) < 300
        assert table.run_sized(handle, given, 2, outputs, len(outputs), sizes, None) == abi.BAD_INPUT
    for count in (0, 1, 3, 2**32 + 2, 2**64 - 1):
        assert table.run(handle, tensors(*good), count, outputs, len(outputs), None) == abi.BAD_ARGUMENT
        assert table.run(handle, tensors(*good), 2, outputs, count + len(outputs) + 2, None) == abi.BAD_ARGUMENT
    seconds, spans, n = (ctypes.c_double * 1)(), ctypes.POINTER(abi.Span)(), ctypes.c_size_t()
    for warmup, runs in ((-1, 1), (0, -1), (least, least)):
        assert table.bench(handle, tensors(*good), 2, warmup, runs, seconds, None) == abi.BAD_ARGUMENT
        assert table.profile(handle, tensors(*good), 2, warmup, runs, None, ctypes.byref(spans), ctypes.byref(n)) == abi.BAD_ARGUMENT
    texts: list[bytes] = []
    thread = threading.Thread(target=lambda: texts.append(table.last_error()))
    thread.start()
    thread.join()
    assert texts == [b""] and table.last_error()  # each thread has its own


@pytest.mark.parametrize("kept", [0, 1, 63, 64, 300, 5000, 0.25, 0.5, 0.9, -1, -129, -5000])
def test_a_half_copied_library(out: Path, tmp_path: Path, kept: float) -> None:
    """It is an error in Python, not a signal. The executable has the loader's answer where that gives one."""
    whole = (out / "libhand.so").read_bytes()
    (tmp_path / "libhand.so").write_bytes(whole[: int(len(whole) * kept) if isinstance(kept, float) else int(kept)])
    script = f"import aitc, sys\ntry:\n aitc.load({str(tmp_path)!r})\nexcept aitc.errors.AitcError as e:\n sys.exit(int(e.exit_code))"
    done = subprocess.run([sys.executable, "-c", "import aitc.errors\n" + script], capture_output=True, text=True)
    assert done.returncode == Exit.IO, (done.returncode, done.stderr)


def test_damaged_weights(out: Path, tmp_path: Path) -> None:
    """A wrong byte is seen on request; wrong sizes always."""
    data = bytearray((out / "libhand.so").read_bytes())
    (tmp_path / "libhand.so").write_bytes(data)
    aitc.load(tmp_path, check=True)
    (tmp_path / "libhand.so").unlink()
    data[-140] ^= 1
    (tmp_path / "libhand.so").write_bytes(data)
    aitc.load(tmp_path)
    with pytest.raises(AitcError, match="are damaged") as e:
        aitc.load(tmp_path, check=True)
    assert e.value.exit_code is Exit.IO
    weights = tmp_path / "w"
    tail = _tail(out, "hand")
    for damaged in (tail[1:], b"\0" + tail, tail[:-1], tail[: len(tail) // 2], tail[:-120] + (2**63).to_bytes(8, "little") + tail[-112:]):
        weights.write_bytes(damaged)
        for check in (False, True):
            with pytest.raises(AitcError) as e:
                aitc.load(out / "libhand.so", weights=weights, check=check)
            assert e.value.exit_code is Exit.IO
    weights.unlink()
    os.mkfifo(weights)
    for place in (weights, tmp_path):
        with pytest.raises(AitcError, match="no regular file"):
            aitc.load(out / "libhand.so", weights=place)


# ---- C and C++


def test_from_c(out: Path, tmp_path: Path) -> None:
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-I",
        out,
        "-L",
        out,
        "-lhand",
        f"-Wl,-rpath,{out}",
    ]
    run("gcc", HERE / "call.c", *flags, "-o", tmp_path / "call")
    lines = run(tmp_path / "call").stdout.splitlines()
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert lines[:2] == ["input x, rank 2", "input token/ids:0, rank 1"]
    assert lines[3] == f"y[0] = {expected(PLAN, x, IDS)[0][0, 0]:.6f}, n = 42, again = 11"


def test_from_cpp_with_two_models_and_threads(out: Path, tmp_path: Path) -> None:
    flags = [
        "-std=c++17",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-I",
        out,
        "-L",
        out,
        "-lhand",
        "-lother",
        f"-Wl,-rpath,{out}",
        "-pthread",
    ]
    run("g++", HERE / "call.cpp", *flags, "-o", tmp_path / "call")
    assert 'input "x": expected f32[batch, 4] (batch in 1..8), given f32[9, 4]' in run(tmp_path / "call").stdout


# ---- the executable


def test_files_in_and_out(out: Path, tmp_path: Path) -> None:
    x = x_of()
    np.save(tmp_path / "x.npy", np.asfortranarray(x))
    np.save(tmp_path / "ids.npy", IDS)
    done = run(
        out / "hand",
        "--input",
        f"x={tmp_path}/x.npy",
        f"--input=token/ids:0={tmp_path}/ids.npy",
        "--output-dir",
        tmp_path / "y",
        "--json",
    )
    for port, want in zip(("y", "n", "x again"), expected(PLAN, x, IDS), strict=True):
        np.testing.assert_allclose(np.load(tmp_path / "y" / f"{port}.npy"), want, rtol=1e-6)
    result = json.loads(done.stdout)
    assert result["outputs"][0] == {"name": "y", "dtype": "f32", "shape": [3, 4]} and done.stderr == ""


def test_made_up_inputs_and_times(out: Path) -> None:
    result = json.loads(
        run(out / "hand", "--bench", "--profile", "--iters", 20, "--warmup", 1, "--dim", "batch=5", "--json").stdout
    )
    latency = result["latency_ms"]
    assert (
        result["iterations"] == 20
        and 0 < latency["min"] <= latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    )
    assert [launch["name"] for launch in result["launches"]] == ["multiply_0", "add_1", "increment_2"]
    assert all(0 < launch["min_us"] <= launch["us"] for launch in result["launches"])
    assert [span["launch"] for span in result["timeline"]] == [0, 1, 2]
    assert all(span["begin_us"] <= span["end_us"] for span in result["timeline"])
    assert result["inputs"][0]["shape"] == [5, 4]
    text = run(out / "hand", "--bench", "--iters", 3).stdout
    assert "latency of 3 runs, ms: p50" in text and "(made up)" in text


def test_a_full_disk_leaves_no_half_file(out: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = run(out / "hand", "--output-dir", tmp_path / "y", code=7, preexec_fn=limit)
    assert "cannot write" in done.stderr and "File too large" in done.stderr
    assert list((tmp_path / "y").iterdir()) == []


def test_an_equals_sign_in_a_path(out: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a=b"
    folder.mkdir()
    np.save(folder / "x=1.npy", x_of())
    for form in (["--input", f"x={folder}/x=1.npy"], [f"--input=x={folder}/x=1.npy"]):
        run(out / "hand", *form, "--output-dir", folder)
        assert np.load(folder / "y.npy").shape[0] == 3


def test_made_up_inputs_are_repeatable(out: Path, tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(out / "hand", "--seed", seed, "--output-dir", tmp_path / folder)
    a, b, c = (np.load(tmp_path / f / "x again.npy") for f in "abc")
    assert (a == b).all() and (a != c).any() and abs(a).max() < 6


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--input", "z=x.npy"], 2, 'hand has no input "z"; it has: x, token/ids:0'),
        (["--input", "x"], 2, "--input takes NAME=FILE.npy"),
        (["--input", "x=none.npy"], 7, "cannot read none.npy: No such file"),
        (["--input", "x=text.npy"], 7, "text.npy is not a .npy file"),
        (["--input", "x=short.npy"], 7, "short.npy is truncated"),
        (["--input", "x=wrong.npy"], 2, 'input "x": expected f32[batch, 4] (batch in 1..8), given i16[3, 4]'),
        (["--input", "x=huge.npy"], 7, "huge.npy: no memory holds the shape"),
        (["--input", "x=bare.npy"], 7, "bare.npy: the header of this .npy file ends after 'shape'"),
        (["--dim", "batch=99"], 2, "--dim batch takes a number of at least 1 and at most 8"),
        (["--dim", "batch=99999999999999999999"], 2, "at most 8"),
        (["--dim", "other=1"], 2, 'no dim "other"'),
        (["--iters", "0"], 2, "--iters takes a number of at least 1"),
        (["--iters"], 2, "--iters needs a value"),
        (["--what"], 2, "unknown option --what"),
        (["--output-dir", "/proc/none"], 7, "cannot write /proc/none/y.npy"),
        (["--device", "3"], 8, "no cpu device 3"),
        (["--weights", "text.npy"], 7, "not a file of weights"),
    ],
)
def test_exit_codes(out: Path, tmp_path: Path, arguments: list[str], code: int, text: str) -> None:
    (tmp_path / "text.npy").write_text("not numpy at all")
    np.save(tmp_path / "wrong.npy", np.zeros((3, 4), np.int16))
    np.save(tmp_path / "x.npy", x_of())
    good = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "short.npy").write_bytes(good[:-4])
    shape = good.index(b"(3, 4), }")
    sizes = b"(4611686018427387904, 16), }"
    (tmp_path / "huge.npy").write_bytes(good[:shape] + sizes + good[shape + len(sizes) :])
    (tmp_path / "bare.npy").write_bytes(good[:shape] + b" " * (128 - shape) + good[128:])
    done = run(out / "hand", *arguments, code=code, cwd=tmp_path)
    assert done.stderr.startswith("error: ") and text in done.stderr and done.stdout == ""


def test_help(out: Path) -> None:
    text = run(out / "hand", "--help").stdout
    assert "--output-dir" in text and "exit codes: 0 done" in text


def test_an_instruction_set_that_was_not_built(out: Path) -> None:
    held = isa_of_tests()
    other = "avx2" if held != "avx2" else "native"
    done = run(out / "hand", code=8, env={**os.environ, "AITC_ISA": other})
    assert f"this library holds code for {held}, and AITC_ISA={other} names none of them" in done.stderr
    done = run(out / "hand", code=2, env={**os.environ, "AITC_ISA": "native,avx3"})
    assert "AITC_ISA=native,avx3: no instruction set is called 'avx3', but avx2, avx512 and native" in done.stderr
