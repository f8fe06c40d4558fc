"""Names of libraries: C identifiers whose files and functions stand in nobody's way."""

from __future__ import annotations

import re
import unicodedata

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


def library_name(text: str) -> str:
    """A C identifier of ASCII letters that resembles ``text`` and is not ``TAKEN``.

    Accents are dropped; C++'s keywords need no care, since functions get a suffix (``class_create``).
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"\W+", "_", plain).strip("_").lower() or "model"
    name = name if name[0].isalpha() else f"n{name}"
    return f"{name}_model" if name in TAKEN else name
