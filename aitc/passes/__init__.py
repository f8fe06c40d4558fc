"""Passes: each file is one verb over a graph."""
