from __future__ import annotations

from pathlib import Path

import click
import pytest
from aitc_cli.options import parse_dim, parse_input
from aitc_cli.render import seconds, short


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("batch=8", ("batch", 8)),
        ("batch=1..32", ("batch", (1, 32))),
        ("p2o.DynamicDimension.0=4", ("p2o.DynamicDimension.0", 4)),
        ("a=b=3", ("a=b", 3)),
        ("n=0", ("n", 0)),
        ("n=5..5", ("n", (5, 5))),
        ("total=past+seq", ("total", "past+seq")),
        ("n=2 * m // 3", ("n", "2 * m // 3")),
    ],
)
def test_dims(text: str, want: object) -> None:
    assert parse_dim(text) == want


BAD = [
    "batch",
    "=3",
    "batch=",
    "batch=1:2",
    "batch=-1",
    "batch=3..1",
    "batch=1..",
    "batch=..4",
    "batch=1..2..3",
    "batch=1.5",
]


@pytest.mark.parametrize("text", BAD)
def test_bad_dims(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_dim(text)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("x=1,3,224,224", ("x", (1, 3, 224, 224))),
        ("x=batch,3", ("x", ("batch", 3))),
        ("x=", ("x", ())),
        ("a:0=2, 3", ("a:0", (2, 3))),
        ("x=dir/x=1.npy", ("x", Path("dir/x=1.npy"))),
        ("x=input_0.pb", ("x", Path("input_0.pb"))),
    ],
)
def test_inputs(text: str, want: object) -> None:
    assert parse_input(text) == want


@pytest.mark.parametrize("text", ["x", "=1,2", "x=1,,2", "x=-1,3"])
def test_bad_inputs(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_input(text)


@pytest.mark.parametrize(
    ("s", "want"), [(0.0004, "0 ms"), (0.0123, "12 ms"), (1.26, "1.3 s"), (89, "89.0 s"), (125, "2 min 05 s")]
)
def test_durations(s: float, want: str) -> None:
    assert seconds(s) == want


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("Building CXX object CMakeFiles/kernels_avx2.dir/kernels/conv_12.cpp.o", "avx2 conv_12"),
        ("Building CXX object CMakeFiles/library.dir/model.cpp.o", "library model"),
        ("kernels/gemm_1.cu", "gemm_1"),
        ("Linking CXX shared library libx.so", "Linking CXX shared library libx.so"),
    ],
)
def test_short_words_for_objects(what: str, want: str) -> None:
    assert short(what) == want
