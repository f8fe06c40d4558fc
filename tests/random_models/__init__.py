"""Random small ONNX models for property tests: ``writer`` keeps what is drawn, ``kinds`` says what can be drawn."""
