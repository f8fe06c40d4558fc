"""Machines, as data."""
