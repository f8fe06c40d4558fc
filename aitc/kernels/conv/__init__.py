"""Convolutions as implicit matrix products, and depthwise ones.

Hopper's are in ``hopper``; filters are packed in ``aitc/ir/packing.py``.
"""
