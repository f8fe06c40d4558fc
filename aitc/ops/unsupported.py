"""ONNX operators that aitc does not compile, and why: errors, ``aitc check`` and docs/operators.md say it in these words."""

from __future__ import annotations

_STRINGS = "strings: there is no element type for them in a compiled binary"
_TRAINING = "training: aitc compiles inference"
_MAPS = "maps: a compiled model takes and gives tensors"
_VOTES = "the votes and coupled probabilities of a support vector classifier: nothing is compiled for them yet"
_FIRST = "a form of opset 1 that no exporter writes: newer ones are compiled"

REASONS: dict[tuple[str, str], str] = {  # (domain, operator), the domain of ai.onnx being ""
    **{("", name): _STRINGS for name in ("StringConcat", "StringNormalizer", "StringSplit")},
    **{("ai.onnx.ml", name): _STRINGS for name in ("CategoryMapper", "LabelEncoder")},
    ("", "RegexFullMatch"): "regular expressions on strings",
    ("", "TfIdfVectorizer"): "n-grams of strings and of sequences of any length",
    ("", "ImageDecoder"): "files of JPEG, PNG and other formats",
    **{("ai.onnx.ml", name): _MAPS for name in ("CastMap", "DictVectorizer", "ZipMap")},
    ("ai.onnx.ml", "SVMClassifier"): _VOTES,
    **{("ai.onnx.preview.training", name): _TRAINING for name in ("Adagrad", "Adam", "Gradient", "Momentum")},
    **{("", name): _FIRST for name in ("Tile", "Upsample")},
}


def reason(domain: str, op_type: str) -> str:
    """Why no form, or an early form, of an operator is compiled; "" if nothing is known of it."""
    return REASONS.get((domain, op_type), "")
