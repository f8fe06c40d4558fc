"""Example models: a catalog that exports them, a development set of real files, and small committed ones.

`python -m models --help` from the repository's root lists the commands. Only `catalog`, `export` and `perturb` need
torch; `inputs`, `devset`, `tiny` and `demo` need numpy (and onnx) alone.
"""
