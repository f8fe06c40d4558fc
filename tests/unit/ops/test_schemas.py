"""Importer functions against ONNX's own schemas, of every opset version: names and defaults of attributes, numbers
of inputs."""

from __future__ import annotations

import inspect
from typing import Any

import onnx
import pytest

from aitc import registry
from aitc.ops.attribute import OF_BODIES
from aitc.ops.declare import IMPORTERS, find_importer
from aitc.ops.unsupported import REASONS, reason

registry.load("aitc.ops")

# Defaults that differ on purpose: "none given" instead of ONNX's number, inference instead of training, misprints.
OTHER_DEFAULT = {("Clip", "min"), ("Clip", "max"), ("Dropout", "is_test"), ("BatchNormalization", "is_test"), ("RNN", "activations"),
                 ("GRU", "direction"), ("GridSample", "mode")}  # fmt: skip

SCHEMAS = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx.ml") and not s.deprecated]


def default(attribute: Any) -> Any:
    if not attribute.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value


@pytest.mark.parametrize("schema", SCHEMAS, ids=[f"{s.name}-{s.since_version}" for s in SCHEMAS])
def test_signature(schema: Any) -> None:
    entry = find_importer(schema.domain, schema.name, schema.since_version)
    if entry is None:
        has_body = schema.has_function or schema.has_context_dependent_function
        assert has_body or reason(schema.domain, schema.name)
        return
    if not entry.variadic:
        assert len(entry.inputs) >= schema.max_input
        required = [n for n in entry.inputs[: entry.required] if n not in entry.nullable]
        assert len(required) <= schema.min_input
    for name, attribute in schema.attributes.items():
        if name == "consumed_inputs":
            continue
        assert name in entry.attributes
        ours, theirs = entry.attributes[name], default(attribute)
        if ours is inspect.Parameter.empty:
            assert attribute.required or schema.since_version < 5, f"{name} is optional in ONNX"
        elif theirs is not None and (schema.name, name) not in OTHER_DEFAULT and ours is not None:
            tolerance = 1e-4 if schema.since_version < 6 else 1e-6  # Selu's constants were spelt with fewer digits
            assert ours == pytest.approx(theirs, rel=tolerance) if isinstance(theirs, float) else ours == theirs


STRINGS = (onnx.AttributeProto.STRING, onnx.AttributeProto.STRINGS)


@pytest.mark.parametrize("schema", SCHEMAS, ids=[f"{s.name}-{s.since_version}" for s in SCHEMAS])
def test_words_of_schemas_have_a_list(schema: Any) -> None:
    """Also those of operators that ONNX defines by a body, which none of our functions receives."""
    entry = find_importer(schema.domain, schema.name, schema.since_version)
    if entry is None and reason(schema.domain, schema.name):
        return
    contracts = OF_BODIES.get((schema.domain, schema.name), {}) if entry is None else entry.contracts
    for name, attribute in schema.attributes.items():
        if attribute.type.value in STRINGS:
            assert name in contracts and (contracts[name].choices or contracts[name].text), name
            if contracts[name].choices and attribute.default_value.name and (schema.name, name) not in OTHER_DEFAULT:
                contracts[name].fitting(name, default(attribute))


def test_words_of_signatures_have_a_list() -> None:
    """Of every domain: a list, or the reason why there is none."""
    for (domain, op_type), versions in IMPORTERS.items():
        for entry in versions:
            for name, contract in entry.contracts.items():
                if contract.kind is str or "strings" in name or (contract.kind is tuple and contract.text):
                    assert contract.choices or (contract.text and contract.text.reason), (domain, op_type, name)
                    if contract.choices:
                        with pytest.raises(ValueError, match="must be one of"):
                            contract.fitting(name, "bogus" if contract.kind is str else ("bogus",))


def test_every_version_is_one_that_onnx_has() -> None:
    """``since`` of an importer may lie between two versions of the schema, never before the operator's first."""
    first: dict[tuple[str, str], int] = {}
    for s in SCHEMAS:
        first[s.domain, s.name] = min(s.since_version, first.get((s.domain, s.name), s.since_version))
    for (domain, name), versions in IMPORTERS.items():
        if (domain, name) in first:
            assert [v.since for v in versions] == sorted({v.since for v in versions})
            assert versions[-1].since <= max(s.since_version for s in SCHEMAS if (s.domain, s.name) == (domain, name))


def test_reasons_are_of_operators_that_onnx_has() -> None:
    assert set(REASONS) <= {(s.domain, s.name) for s in onnx.defs.get_all_schemas_with_history()}
