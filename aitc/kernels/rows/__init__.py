"""Kernels over rows of k elements: reductions, softmax, norms, and the statistics of group norms.

All see a tensor as rows through ``rows.py``; ``row_kernel.py`` is what most of them share.
"""
