"""Plan -> sources: pure, complete, and readable."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hand_plans import scale_then_shift

from aitc.emit.host import identifier, parameter_name
from aitc.emit.project import architectures, emit
from aitc.errors import Loc
from aitc.ir import dim as dims
from aitc.ir.dtype import BF16, F32
from aitc.schedule.plan.plan import Buffer, DimArg, KernelSource, Launch, Plan, PointerArg, Port, Space, TensorMapArg
from aitc.targets.target import find_target


def test_equal_plans_give_equal_bytes() -> None:
    assert emit(scale_then_shift()) == emit(scale_then_shift())
    assert list(emit(scale_then_shift())) == sorted(emit(scale_then_shift()))


@pytest.mark.parametrize(("api", "target"), [("cpu", "cpu"), ("cuda", "sm90"), ("hip", "gfx90a")])
def test_the_project_is_complete_and_says_nothing_of_this_machine(api: str, target: str) -> None:
    files = emit(scale_then_shift(api=api, target=target))
    suffix = {"cpu": "cpp", "cuda": "cu", "hip": "hip"}[api]
    assert {
        "CMakeLists.txt",
        "hand.h",
        "model.cpp",
        "main.cpp",
        "kernels.h",
        "exports.map",
        f"kernels/add_1.{suffix}",
    } <= set(files)
    for path, text in files.items():
        assert "/home/" not in text and str(Path(__file__).resolve().parents[3]) not in text, path
        for header in re.findall(r'#include "(aitc/[^"]+)"', text):
            other = "aitc/gpu/" if api == "cpu" else "aitc/cpu/"
            assert f"include/{header}" in files or header.startswith(other), f"{path} includes {header}"


def test_launches_name_their_nodes_and_spell_their_dims() -> None:
    text = emit(scale_then_shift())["model.cpp"]
    assert (
        '  // multiply_0: Mul "scale"\n  r.launch(0, k.multiply_0, in_x, weights, arena + 256, dims.batch * 4);\n'
        in text
    )
    assert (
        '  // add_1: Add "shift" | in a launch of its own\n  r.launch(1, k.add_1, arena + 256, weights + 64, out_y, dims.batch * 4);\n'
        in text
    )
    assert "  // increment_2: Add #2\n" in text
    cuda = emit(scale_then_shift(api="cuda", target="sm90"))["model.cpp"]
    assert (
        "r.launch(1, k.add_1, {{((dims.batch + 63) / 64), 1, 1}, {256, 1, 1}, 0, 1, true}, "
        "{arena + 256, weights + 64, out_y, int32_t(dims.batch * 4)});" in cuda
    )


def test_an_output_that_is_an_input_is_copied() -> None:
    assert "r.copy(out_x_again, in_x, dims.batch * 16);  // x again" in emit(scale_then_shift())["model.cpp"]


def test_two_outputs_of_one_buffer_and_one_of_weights() -> None:
    plan = scale_then_shift(symbolic=False)
    plan = replace(
        plan,
        outputs=(
            plan.outputs[0],
            replace(plan.outputs[0], name="twice"),
            plan.outputs[1],
            Port("w", F32, (4,), "shift"),
        ),
    )
    text = emit(plan)["model.cpp"]
    assert "r.copy(out_twice, out_y, 32);" in text and "r.copy(out_w, weights + 64, 16);" in text


def test_a_launch_has_to_pass_what_its_kernel_declares() -> None:
    plan = scale_then_shift()
    wrong = replace(plan.launches[0], args=plan.launches[0].args[:-1])
    with pytest.raises(
        ValueError,
        match=r"launch multiply_0: .* declares parameters \['x', 'w', 'y', 'n'\], the launch passes \['x', 'w', 'y'\]",
    ):
        emit(replace(plan, launches=(wrong,)))


def test_a_launch_on_an_empty_tensor_is_guarded() -> None:
    plan = scale_then_shift()
    maybe = dims.symbol("batch", 0, 8)
    guarded = emit(replace(plan, launches=(replace(plan.launches[0], skip_if_zero=maybe),)))["model.cpp"]
    assert "if (dims.batch != 0) r.launch(0, k.multiply_0" in guarded
    assert "if (" not in emit(plan)["model.cpp"].split("launch by launch")[1].split("Program")[0]


def test_hostile_names_stay_inside_comments_and_strings() -> None:
    plan = scale_then_shift()
    evil = 'x"); system("true'
    loc = Loc("m.onnx", "main", 0, "*/ int main() { //\n#error no\\", "Relu")
    plan = replace(
        plan,
        model='we"ird\n*/.onnx',
        inputs=(replace(plan.inputs[0], name=evil), replace(plan.inputs[1], name="ids\n#error")),
        launches=(replace(plan.launches[0], locs=(loc,)), *plan.launches[1:]),
    )
    files = emit(plan)
    assert not re.search(r"^#error", files["model.cpp"], re.MULTILINE)
    assert 'x\\"); system(\\"true' in files["model.cpp"]
    assert files["hand.h"].split("\n", 3)[0].count("*/") == 0


def test_ports_that_sanitise_to_one_name_stay_apart() -> None:
    plan = scale_then_shift()
    plan = replace(plan, inputs=(replace(plan.inputs[0], name="a/b"), replace(plan.inputs[1], name="a.b")))
    text = emit(plan)["model.cpp"]
    assert "in_a_b = r.inputs[0]" in text and "in_a_b_ = r.inputs[1]" in text


def test_tensor_maps() -> None:
    m = dims.symbol("batch", 1, 8)
    tiled = TensorMapArg("a", BF16, "t0", 8, (64, m), (128,), (64, 64), (1, 1))
    columns = TensorMapArg(
        "b", BF16, "t0", 0, (64, 8, 8, m), (128, 1024, 8192), (), (1, 1, 1, 1), 64, ((-1, -1), (-1, -1), 64, 128)
    )
    source = KernelSource(
        "k",
        "gemm_sm90",
        "c",
        "kernel",
        scale_then_shift().kernels[0].context,
        ("const __grid_constant__ CUtensorMap a", "const __grid_constant__ CUtensorMap b"),
    )
    base = scale_then_shift(api="cuda", target="sm90")
    text = emit(
        replace(base, kernels=(source,), launches=(Launch("k", "k", (tiled, columns), smem_bytes=100000, cluster=2),))
    )
    assert "tiled_map(AITC_BF16, arena + 272, {64, dims.batch}, {128}, {64, 64}, {1, 1}, 128)" in text["model.cpp"]
    assert (
        "im2col_map(AITC_BF16, arena + 256, {64, 8, 8, dims.batch}, {128, 1024, 8192}, {-1, -1}, {-1, -1}, 64, 128, {1, 1, 1, 1}, 64)"
        in text["model.cpp"]
    )
    assert "{1, 1, 1}, 100000, 2, false}" in text["model.cpp"]
    assert 'k{k_image, "k", /*dynamic shared memory*/ 100000}' in text["kernels.h"]


def test_architectures() -> None:
    def of(*names: str) -> tuple[str, ...]:
        return architectures("cuda", [find_target(n) for n in names])

    assert of("h200") == ("-gencode=arch=compute_90a,code=sm_90a",)
    assert of("h200", "a100") == (
        "-gencode=arch=compute_80,code=[sm_80,compute_80]",
        "-gencode=arch=compute_90a,code=sm_90a",
    )
    assert architectures("hip", [find_target("mi250")]) == ("--offload-arch=gfx90a",)
    assert architectures("cpu", [find_target("cpu")]) == ()


@pytest.mark.parametrize(
    ("text", "expected"), [("input.1", "input_1"), ("1x", "_1x"), ("模", "_"), ("", "_"), ("a/b:0", "a_b_0")]
)
def test_identifiers(text: str, expected: str) -> None:
    assert identifier(text) == expected


@pytest.mark.parametrize(
    "text", ["const float* x", "int64_t x", "const half_t *x", "const __grid_constant__ CUtensorMap x"]
)
def test_parameter_names(text: str) -> None:
    assert parameter_name(text) == "x"


def test_a_model_without_launches() -> None:
    buffers = (Buffer("x", Space.INPUT, F32, 16, 16),)
    plan = Plan(
        1,
        "same",
        "same.onnx",
        ("cpu",),
        "cpu",
        "model",
        (),
        (Port("x", F32, (4,), "x"),),
        (Port("y", F32, (4,), "x"),),
        buffers,
        (),
        (),
        (),
        0,
        0,
        "",
    )
    assert "r.copy(out_y, in_x, 16);" in emit(plan)["model.cpp"]


def test_arguments_keep_their_width() -> None:
    plan = scale_then_shift(api="cuda", target="sm90")
    args = (*plan.launches[0].args[:3], DimArg("n", 7, "int64_t"))
    text = emit(replace(plan, launches=(replace(plan.launches[0], args=args),)))["model.cpp"]
    assert "int64_t(7)" in text
    offset = PointerArg("x", "half_t", "x", dims.symbol("batch", 1, 8))
    text = emit(replace(plan, launches=(replace(plan.launches[0], args=(offset, *args[1:])),)))["model.cpp"]
    assert "in_x + (dims.batch * 2)" in text
