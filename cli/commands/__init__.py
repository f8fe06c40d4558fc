"""One module a verb; each has ``command``, a click command."""
