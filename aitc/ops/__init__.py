"""Core operators and the ONNX operators made of them, one file per family."""
