"""Launches: small independent ones share one, branches run side by side, and the host steps in where only the data decides."""
