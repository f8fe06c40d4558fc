"""Jinja2 templates and C++ headers of the generated code; installed as ``aitc_templates``."""
