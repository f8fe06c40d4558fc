"""Kernels of sm_90a: the copy engine (TMA) brings tiles, wgmma multiplies them, and each kernel says what its operands are.

``sm90.py`` has tiles, tensor maps and the machine model; ``product_sm90.py`` puts a launch together.
"""
