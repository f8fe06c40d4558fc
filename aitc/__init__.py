"""aitc compiles ONNX models to self-contained binaries for CPUs, CUDA and HIP GPUs."""

__version__ = "0.1.0"
