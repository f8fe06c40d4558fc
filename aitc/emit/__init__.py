"""Plan to sources."""
