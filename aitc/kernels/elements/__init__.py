"""Element rules: how one output element of an op is computed, for the map kernel and for functors of every other kernel."""
