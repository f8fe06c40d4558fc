"""The graph IR: types, values, nodes, and what walks over them."""
