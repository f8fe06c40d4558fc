"""Rewrites of the graph for the target, before groups are formed: control flow, norms between products, summed convolutions, Concats in place.

``prepare.py`` runs them in order.
"""
