"""The Plan as data: its parts, its JSON, its invariants, the places of its buffers, and what it requires of run-time dims.

The emitter sees this room and no other.
"""
