"""The object cache: results of compiler calls by content, shared by all builds of a user.

Run as a script it is a compiler launcher: ``python -I -S cache.py g++ ... -o x.o x.cpp`` runs the compiler, or copies the object that
an equal call made before, and says what that said (warnings, ptxas's figures). Equal: the same compiler identity
(AITC_CACHE_TOOLCHAIN), the same flags, the same text of the source and of every header that it includes in quotes. Entries are written
beside their place and renamed, so that readers never see half a file. Code for the machine's own instruction set
(``-march=native``) is equal where AITC_CACHE_PROCESSOR is, too: a cache may be shared by machines.
Settings: AITC_CACHE_DIR (default ~/.cache/aitc; empty: no cache), AITC_CACHE_BYTES (default 4 GiB).

Only what the standard library loads in a few milliseconds is imported here: this file starts once for every object.
"""

from __future__ import annotations

import hashlib
import os
import sys

DEFAULT_BYTES = 4 << 30


def cache_folder() -> str:
    """The cache's folder; empty if there is to be none."""
    folder = os.environ.get("AITC_CACHE_DIR")
    if folder is not None:
        return folder
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "aitc")


def entry_path(folder: str, key: str, suffix: str = "") -> str:
    return os.path.join(folder, "objects", key[:2], key + suffix)


def fetch(source: str, target: str) -> bool:
    """Copies a cache entry to ``target`` and marks it as used. False if there is none."""
    try:
        with open(source, "rb") as file:
            data = file.read()
        os.utime(source)
    except OSError:
        return False
    _write(target, data)
    return True


def keep(source: str, entry: str) -> None:
    """Puts a file into the cache. A cache that cannot be written is no error."""
    try:
        os.makedirs(os.path.dirname(entry), exist_ok=True)
        with open(source, "rb") as file:
            _write(entry, file.read())
    except OSError:
        return


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        try:  # noqa: SIM105  (contextlib takes longer to load than the rest of this file)
            os.unlink(temporary)
        except OSError:
            pass
        raise


def prune(folder: str, limit_bytes: int) -> int:
    """Deletes the entries that were not used for longest until at most ``limit_bytes`` are left. Returns how many bytes went."""
    entries = []
    for where, _, names in os.walk(os.path.join(folder, "objects")):
        for name in names:
            path = os.path.join(where, name)
            try:
                status = os.stat(path)
            except OSError:
                continue
            entries.append((status.st_mtime, status.st_size, path))
    total, freed = sum(size for _, size, _ in entries), 0
    for _, size, path in sorted(entries):
        if total - freed <= limit_bytes:
            break
        try:
            os.unlink(path)
            freed += size
        except OSError:
            pass
    return freed


def limit_bytes() -> int:
    try:
        return int(os.environ.get("AITC_CACHE_BYTES", DEFAULT_BYTES))
    except ValueError:
        return DEFAULT_BYTES


# ---- the launcher


def _includes(path: str, folders: list[str], seen: dict[str, bytes]) -> None:
    """Reads ``path`` and, through quotes, all that it includes."""
    if path in seen:
        return
    with open(path, "rb") as file:
        text = seen[path] = file.read()
    for line in text.split(b"\n"):
        bare = line.replace(b" ", b"")
        if bare.startswith(b'#include"'):
            name = os.fsdecode(line.split(b'"')[1])
            for folder in [os.path.dirname(path), *folders]:
                candidate = os.path.normpath(os.path.join(folder, name))
                if os.path.isfile(candidate):
                    _includes(candidate, folders, seen)
                    break


def call_key(command: list[str], toolchain: str) -> str | None:
    """The key of a compiler call, or None if it is not one that the cache understands (one source, one output)."""
    source = output = None
    folders: list[str] = []
    flags: list[str] = []
    arguments = iter(command[1:])
    for a in arguments:
        if a == "-o":
            output = next(arguments, None)
        elif a in ("-MF", "-MT", "-MQ"):
            next(arguments, None)
        elif a in ("-I", "-isystem"):
            folders.append(next(arguments, ""))
        elif a.startswith("-I"):
            folders.append(a[2:])
        elif a.startswith(("-ffile-prefix-map=", "--rocm-path=", "--rocm-device-lib-path=")):
            continue  # the toolchain's identity stands for ROCm
        elif not a.startswith("-") and a.rpartition(".")[2] in ("cpp", "cu", "hip", "cc", "c"):
            if source is not None:
                return None
            source = a
        else:
            flags.append(a)
    if source is None or output is None or "-E" in flags:
        return None
    seen: dict[str, bytes] = {}
    try:
        _includes(source, folders, seen)
    except OSError:
        return None
    digest = hashlib.sha256()
    native = [os.environ.get("AITC_CACHE_PROCESSOR", "")] if {"-march=native", "-mcpu=native"} & set(flags) else []
    for part in [toolchain, os.path.basename(command[0]), os.path.basename(source), *flags, *native]:
        digest.update(part.encode() + b"\0")
    for text in seen.values():  # in the order of inclusion
        digest.update(hashlib.sha256(text).digest())
    return digest.hexdigest()


def _option(command: list[str], name: str) -> str | None:
    return command[command.index(name) + 1] if name in command else None


def launch(command: list[str]) -> int:
    """Runs ``command`` or gives its cached result. Returns the exit status."""
    folder, toolchain = cache_folder(), os.environ.get("AITC_CACHE_TOOLCHAIN", "")
    key = call_key(command, toolchain) if folder and toolchain else None
    output = _option(command, "-o")
    if key is None or output is None:
        os.execvp(command[0], command)
    depfile = _option(command, "-MF")
    entry = entry_path(folder, key)
    if fetch(entry, output):
        _say(entry + ".log")
        if depfile:  # the generated project is compiled once: its sources are all that ninja has to know
            with open(depfile, "w", encoding="utf-8") as file:
                file.write(f"{_option(command, '-MT') or output}:\n")
        _count(b"+")
        return 0
    status = _run(command, output + ".log")
    if status == 0:
        keep(output, entry)
        if os.path.getsize(output + ".log"):
            keep(output + ".log", entry + ".log")
        _count(b"-")
    return status


def _run(command: list[str], log: str) -> int:
    """Runs ``command``; what it says on stderr goes to the file ``log``, and then to stderr."""
    stderr = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(file, 2)
    os.close(file)
    try:
        status = os.spawnvp(os.P_WAIT, command[0], command)
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
    _say(log)
    return status


def _say(log: str) -> None:
    """Repeats what a compiler said, where it said something."""
    try:
        with open(log, "rb") as file:
            text = file.read()
    except OSError:
        return
    while text:
        text = text[os.write(2, text) :]


def _count(mark: bytes) -> None:
    """Tells the build, by a file of one byte an object, how many objects came out of the cache (+) and how many were compiled (-)."""
    log = os.environ.get("AITC_CACHE_LOG")
    if log:
        with open(log, "ab") as file:
            file.write(mark)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[1:]))
