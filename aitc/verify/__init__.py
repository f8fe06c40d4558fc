"""Binaries against references."""
