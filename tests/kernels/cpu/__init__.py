"""The processor's kernel headers, compiled by themselves and compared with float64 numpy."""
