"""Attention on processors and GPUs, whole or with its keys divided among blocks.

Hopper's is in ``hopper``.
"""
