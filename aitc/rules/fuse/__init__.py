"""Rewrite rules, one idiom a file."""
