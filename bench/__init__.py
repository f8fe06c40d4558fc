"""Measurements of aitc beside PyTorch and ONNX Runtime; `python -m bench.cpu`, `.gpu`, `.build_time`, `.scaling`, `.plot`.

Each writes bench/results/<name>.json: rows of figures with the commit, device, date and command they came from.
Contenders of one row are always measured in one process, in turns.
"""
