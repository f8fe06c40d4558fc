"""ONNX files to graphs of core ops."""
