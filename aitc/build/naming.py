"""Names of libraries: C identifiers whose files and functions stand in nobody's way."""

from __future__ import annotations

import re
import unicodedata

from aitc.errors import AitcError, Diagnostic, Exit

# What <name>, <name>.h and lib<name>.so would replace in the output folder and in the generated project, or hide from
# a program that is compiled and linked with -I and -L on the output folder.
_FILES = "src kernels include images bitcode library program kernels_avx2 kernels_avx512 kernels_native"
_BUILD_TARGETS = "all clean help install test package edit_cache rebuild_cache preinstall"
_LIBRARIES = "c m dl rt util pthread resolv stdc supc gcc gomp z cuda cudart amdhip64"
_HEADERS = (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "
    "stdbool stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype aio dirent dlfcn "
    "elf endian fcntl features glob grp iconv link malloc memory poll pthread pwd regex sched search semaphore spawn "
    "strings syslog termios unistd utime values version wait"
)
TAKEN = frozenset(f"{_FILES} {_BUILD_TARGETS} {_LIBRARIES} {_HEADERS}".split())


def given_name(name: str) -> str:
    """``name``, which somebody chose for the library and its functions, as it is. Raises AitcError (USAGE) if it cannot be used so."""
    if re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) and name not in TAKEN:
        return name
    way_out = f"for example --name {library_name(name)}"
    if name not in TAKEN:
        what = f"{name!r} is no name for functions: letters, digits and _ alone, a letter first"
    elif name in _LIBRARIES.split():
        what = f"a lib{name}.so would stand in the way of the system's -l{name}"
    else:
        what = f"{name!r} is taken: a file of that name stands in the output or is one of the system's headers"
    raise AitcError(Diagnostic("C02", what, help=way_out), Exit.USAGE)


def library_name(text: str) -> str:
    """A C identifier of ASCII letters that resembles ``text`` and is not ``TAKEN``.

    Accents are dropped; C++'s keywords need no care, since functions get a suffix (``class_create``).
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", plain).strip("_").lower() or "model"
    name = name if name[0].isalpha() else f"n{name}"
    return f"{name}_model" if name in TAKEN else name
