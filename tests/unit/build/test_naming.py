"""Names that a model's file has, and those that its library gets."""

from __future__ import annotations

import pytest

from aitc.build.naming import TAKEN, given_name, library_name
from aitc.errors import AitcError, Exit


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


@pytest.mark.parametrize("name", ["resnet", "ResNet", "v2_net"])
def test_a_given_name_is_taken_as_it_is(name: str) -> None:
    assert given_name(name) == name


@pytest.mark.parametrize(
    ("name", "why", "instead"),
    [
        ("m", "-lm", "m_model"),
        ("string", "system's headers", "string_model"),
        ("a-b", "letters, digits", "a_b"),
        ("5", "a letter first", "n5"),
        ("größe", "letters, digits", "grobe"),
    ],
)
def test_a_given_name_that_cannot_be_is_refused(name: str, why: str, instead: str) -> None:
    with pytest.raises(AitcError) as caught:
        given_name(name)
    (problem,) = caught.value.diagnostics
    assert caught.value.exit_code is Exit.USAGE and why in problem.message
    assert problem.help == f"for example --name {library_name(name)}" and library_name(name).isidentifier()
    if name.isascii():
        assert library_name(name) == instead
