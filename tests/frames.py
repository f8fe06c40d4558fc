"""Finds stores and loads in compiled code that fault, because a frame is not where their instruction wants it.

gcc 8 to 15 decides on the alignment of a leaf's frame by the accesses that name the stack pointer and misses those through a pointer
derived from it. So each function of x86-64 code is followed from its entry, where the ABI says that the stack pointer is 8 less
than a multiple of 16: of every register and slot of the frame that holds an address in the frame, its value modulo 64 is known as far
as it is certain. An access by an instruction that wants alignment (vmovdqa, vmovaps, an operand of an SSE instruction …) at an address
that is certainly not a multiple of it is a fault; so is one at an address that may lie anywhere for all that the code does.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = 64  # alignment is followed up to this
MOVES = re.compile(r"^v?(movap[sd]|movdqa(32|64)?|movnt(dq|p[sd]|dqa))$")
JUMPS = re.compile(r"^j[a-z]+$")
INTEGER = r"p(add|sub|and|or|xor|andn|mul|cmp|min|max|ack|unpck|shuf|madd|avg|s[lr][la])\w*"
FLOAT = r"(add|sub|mul|div|and|andn|or|xor|min|max|sqrt|unpck[lh]|shuf|cmp\w*)p[sd]|cvt(dq2ps|ps2dq|tps2dq)"
SSE = re.compile(rf"^({INTEGER}|{FLOAT})$")
MEMORY = re.compile(r"(-?0x[0-9a-f]+)?\((%r\w+)?(?:,(%r\w+),(\d))?\)")
REGISTER = {
    **{f"%e{n}": f"%r{n}" for n in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")},
    **{f"%r{n}d": f"%r{n}" for n in range(8, 16)},
}


@dataclass(frozen=True, slots=True)
class Place:
    """An address in the frame: ``offset`` from a base that is a multiple of ``align`` (both at most ``TOP``)."""

    offset: int
    align: int

    def moved(self, by: int) -> Place:
        return Place((self.offset + by) % self.align, self.align)

    def aligned(self, to: int) -> Place:
        """After ``and $-to``: what lies below is gone."""
        return Place(self.offset // to * to, self.align) if to <= self.align else Place(0, min(to, TOP))

    def meet(self, other: Place) -> Place:
        align = min(self.align, other.align)
        while align > 1 and self.offset % align != other.offset % align:
            align //= 2
        return Place(self.offset % align, align)


@dataclass(frozen=True, slots=True)
class Fault:
    """An access that faults whenever it is reached, or may: ``sure`` says which."""

    function: str
    address: str
    instruction: str
    sure: bool


State = dict[str, Place]


def faults(path: Path) -> list[Fault]:
    """What is wrong in an object of x86-64, or in a library, which may be stripped: its unwind tables say where functions begin.

    Addresses that go through memory, or from a function to another, are not followed: a fault there goes unseen, none is made up.
    """
    if os.uname().machine != "x86_64":
        return []
    starts = entries(path) if ".so" in path.name else None
    done = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "-w", str(path)], capture_output=True, text=True, check=True)
    return [fault for name, body in functions(done.stdout, starts) for fault in check(name, body)]


def entries(path: Path) -> dict[int, bool]:
    """Where functions begin; False: a part that others jump to from within their frame."""
    done = subprocess.run(["readelf", "-wF", str(path)], capture_output=True, text=True, check=True)
    found: dict[int, bool] = {}
    for block in done.stdout.split("\n\n"):
        if head := re.search(r" FDE .* pc=([0-9a-f]+)\.\.", block):
            row = re.search(r"^[0-9a-f]+ (\S+)", block[head.end() :], re.MULTILINE)
            found[int(head[1], 16)] = row is None or row[1] == "rsp+8"
    return found


def functions(listing: str, starts: dict[int, bool] | None = None) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """(name, instructions by address) of each function that objdump prints: at its names, or at ``starts``."""
    name = ""
    body: list[tuple[int, str]] = []
    for line in listing.splitlines():
        if found := re.match(r"^[0-9a-f]+ <(.+)>:$", line):
            if body:
                yield name, body
            name, body = found[1], []
        elif found := re.match(r"^\s*([0-9a-f]+):\s+(\S.*)$", line):
            address = int(found[1], 16)
            if starts is not None and address in starts:
                if body:
                    yield name, body
                name, body = f"{address:x}" + ("" if starts[address] else ".cold"), []
            text = re.sub(r"^((notrack|bnd|lock|rep|repz|repnz|data16|cs)\s+)+", "", found[2].split("#")[0].strip())
            body.append((address, re.sub(r"\s*<.*", "", text)))
    if body:
        yield name, body


def check(name: str, body: list[tuple[int, str]]) -> list[Fault]:
    """Follows one function: states at each instruction until nothing changes, then the accesses."""
    place = {address: i for i, (address, _) in enumerate(body)}
    states: list[State | None] = [None] * len(body)
    states[0] = {"%rsp": Place(8, 16)}  # the ABI's: a call pushed 8 bytes below a multiple of 16
    if ".cold" in name:
        states[0] = {}  # entered in the middle of another function's frame
    waiting = [0]
    while waiting:
        i = waiting.pop()
        state = states[i]
        assert state is not None
        after = step(body[i][1], dict(state))
        for j in successors(body, place, i):
            before = states[j]
            joined = after if before is None else {r: before[r].meet(after[r]) for r in before.keys() & after.keys()}
            if joined != before:
                states[j] = joined
                waiting.append(j)
    return [
        fault
        for (address, text), state in zip(body, states, strict=True)
        if state is not None and (fault := access(name, f"{address:x}", text, state)) is not None
    ]


def successors(body: list[tuple[int, str]], place: dict[int, int], i: int) -> list[int]:
    words = body[i][1].split()
    found = []
    if JUMPS.match(words[0]) and len(words) > 1 and re.fullmatch(r"[0-9a-f]+", words[1]):
        target = place.get(int(words[1], 16))
        if target is not None:
            found.append(target)
    if words[0] not in ("jmp", "ret", "ud2", "hlt") and i + 1 < len(body):
        found.append(i + 1)
    return found


def operands(text: str) -> tuple[str, list[str]]:
    """The mnemonic and its operands; commas within parentheses do not part them."""
    word, _, rest = text.partition(" ")
    return word, [o.strip() for o in re.split(r",(?![^(]*\))", rest.strip())] if rest.strip() else []


def step(text: str, state: State) -> State:
    """The state after an instruction."""
    word, to = operands(text)
    width = 8
    if word.startswith("push"):
        return moved(state, -width)
    if word.startswith("pop"):
        state.pop(REGISTER.get(to[0], to[0]), None)
        return moved(state, width)
    if word.startswith("leave"):
        base = state.pop("%rbp", None)
        state.pop("%rsp", None)
        if base is not None:
            state["%rsp"] = base.moved(width)
        return state
    if word.startswith("call"):
        for register in ("%rax", "%rcx", "%rdx", "%rsi", "%rdi", "%r8", "%r9", "%r10", "%r11"):
            state.pop(register, None)
        return state
    if not to or word.startswith(("cmp", "test", "nop", "j")):
        return state
    last = REGISTER.get(to[-1], to[-1])
    if "(" in last:  # into memory: slots of the frame are not followed, so what comes back from there is unknown
        return state
    if word in ("add", "sub") and to[0].startswith("$") and last in state:
        by = int(to[0][1:], 16)
        state[last] = state[last].moved(by if word == "add" else -by)
    elif word == "and" and to[0].startswith("$") and last in state:
        mask = int(to[0][1:], 16)
        below = (1 << 64) - mask
        if below & (below - 1) == 0:
            state[last] = state[last].aligned(below)
        else:
            state.pop(last)
    elif word == "mov" and to[0] in state:
        state[last] = state[to[0]]
    elif word == "lea" and (address := value(to[0], state)) is not None:
        state[last] = address
    elif last in state:
        del state[last]
    if word.startswith("xchg"):
        state.pop(REGISTER.get(to[0], to[0]), None)
    return state


def moved(state: State, by: int) -> State:
    if "%rsp" in state:
        state["%rsp"] = state["%rsp"].moved(by)
    return state


def value(memory: str, state: State) -> Place | None:
    """Where an operand in memory lies, if it lies in the frame. An index leaves of the alignment what its scale keeps."""
    found = MEMORY.fullmatch(memory)
    if found is None:
        return None
    base, index, scale = found[2], found[3], int(found[4] or 1)
    if base not in state and index in state and scale == 1:
        base, index = index, base
    if base not in state:
        return None
    at = state[base].moved(int(found[1] or "0", 16))
    if index is None:
        return at
    return Place(at.offset % min(at.align, scale), min(at.align, scale))


def access(name: str, address: str, text: str, state: State) -> Fault | None:
    """The fault of an instruction, if it wants more alignment than its place in the frame has."""
    word, to = operands(text)
    if not (MOVES.match(word) or SSE.match(word)):
        return None
    memory = next((o for o in to if "(" in o), None)
    at = value(memory.partition("{")[0], state) if memory is not None else None
    if memory is None or at is None:
        return None
    wants = 64 if "%zmm" in text else 32 if "%ymm" in text else 16
    known = min(at.align, wants)
    if at.offset % known:
        return Fault(name, address, text, sure=True)
    found = MEMORY.fullmatch(memory.partition("{")[0])
    if known < wants and found is not None and found[3] is None:
        return Fault(name, address, text, sure=False)
    return None
