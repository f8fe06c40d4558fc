"""Kernels: what each accepts, its configurations, and its template context."""
