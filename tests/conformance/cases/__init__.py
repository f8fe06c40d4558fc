"""Cases that broke other compilers, and the kinds behind them: a module a family, each with ``CASES``."""
