"""Names that a model's file has, and those that its library gets."""

from __future__ import annotations

import pytest

from aitc.build.naming import TAKEN, library_name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("resnet50", "resnet50"),
        ("ResNet-50 v1.5", "resnet_50_v1_5"),
        ("50net", "n50net"),
        ("__x__", "x"),
        ("", "model"),
        ("..", "model"),
        ("Modèle", "modele"),
        ("日本語", "model"),
        ("日本語2", "n2"),
        ("class", "class"),
        ("src", "src_model"),  # the folder of the sources
        ("all", "all_model"),  # ninja's first target
        ("m", "m_model"),  # libm.so, for which every C++ program is linked
        ("string", "string_model"),  # <string.h>
        ("kernels", "kernels_model"),  # kernels.h of the project
        ("SRC ", "src_model"),
    ],
)
def test_library_name(given: str, name: str) -> None:
    assert library_name(given) == name


def test_every_name_is_an_identifier_that_is_free() -> None:
    for text in TAKEN:
        assert library_name(text).isidentifier() and library_name(text) not in TAKEN
        assert library_name(library_name(text)) == library_name(text)
