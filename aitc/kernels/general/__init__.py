"""Kernels for any op: ``map`` (a place of the output at a time), and those with a loop of their own (scans, searches, recurrences).

What no special kernel takes runs here: slower, never wrong.
"""
