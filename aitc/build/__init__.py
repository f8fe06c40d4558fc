"""Sources to binaries."""
