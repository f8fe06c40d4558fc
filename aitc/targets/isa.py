"""Instruction sets that cpu kernels are compiled for: the one place for their flags. The generated CMake project has the rest."""

from __future__ import annotations

X86 = {
    "avx2": ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2"),
    "avx512": (
        "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mprefer-vector-width=512",
    ),
}  # fmt: skip
"""Compiler flags of each set of x86-64 that a library may hold, the narrowest first."""

ISAS = (*X86, "native")
"""What ``--isa`` and AITC_ISA may name; native: what the compiler says of the machine that it runs on."""


def needs(isa: str) -> frozenset[str]:
    """What a processor must have to run code for ``isa`` (a key of ``X86``), in the words of /proc/cpuinfo."""
    options = (flag.removeprefix("-m") for flag in X86[isa] if "=" not in flag)
    return frozenset("bmi1" if option == "bmi" else option for option in options)
