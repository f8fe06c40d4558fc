"""Many compiled models in one library: the kernels and the host code that aitc emits, in two translation units.

They are compiled as a user's are (see product.py). CMake, several instruction sets and a library for each model are left out; equal
kernels of different models are compiled once. Host code, the longest to compile, is optimised where AITC_TEST_FULL=1 asks for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import onnx
import product
from product import isa_of_tests

from aitc.build import cache as object_cache
from aitc.build.weights import write_weights
from aitc.emit.project import emit, kernel_path
from aitc.emit.render import render, template_root
from aitc.importer.onnx import import_model
from aitc.ir.use import input_uses
from aitc.passes.base import Context
from aitc.passes.stages import fuse, layout, simplify
from aitc.schedule.plan.check import check_plan
from aitc.schedule.plan.plan import Plan
from aitc.schedule.schedule import PlanOptions, identity, schedule
from aitc.targets.target import find_target
from aitc.verify.ranges import measured_ranges

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">].*$', re.MULTILINE)


def plan_of(
    model: onnx.ModelProto,
    library_name: str,
    source: str,
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    precision: str = "model",
    target: str = "cpu",
) -> Plan:
    """The plan of ``model`` for a target, by the stages of ``aitc compile``; ``source`` is the name that messages give it."""
    machine = find_target(target)
    graph = import_model(model, dims or {}).graph
    context = Context(machine, precision, ())
    uses = dict(input_uses(graph))
    simplify(graph, context)
    fuse(graph, context)
    if precision == "fp16":
        context.ranges = measured_ranges(model.SerializeToString(), graph, uses)
    layout(graph, context)
    return check_plan(schedule(graph, machine, PlanOptions(library_name, source)))


def shared_kernels(plans: Sequence[Plan]) -> tuple[list[Plan], list[tuple[str, str]]]:
    """The plans with entries that are unique among all of them, equal kernels once, and (entry, text) of each kernel."""
    entries: dict[str, str] = {}
    texts: list[tuple[str, str]] = []
    renamed = []
    for plan in plans:
        names: dict[str, str] = {}
        kernels = []
        for kernel in plan.kernels:
            key = hashlib.sha256(repr((kernel.template, identity(kernel.context))).encode()).hexdigest()
            new = key not in entries
            name = entries.setdefault(key, f"k{len(entries)}")
            context = replace(kernel.context, entry=name)
            if new:
                texts.append((name, render(f"kernels/{kernel.template}.j2", context, c=context)))
            names[kernel.entry] = name
            kernels.append(replace(kernel, entry=name, context=context))
        unique = {k.entry: k for k in kernels}
        launches = tuple(replace(launch, entry=names[launch.entry]) for launch in plan.launches)
        renamed.append(replace(plan, kernels=tuple(unique.values()), launches=launches))
    return renamed, texts


TABLE = """
#include "aitc/cpu/requirements.h"
struct Kernels {};
extern const Kernels AITC_ENTRY(kernels);
const Kernels AITC_ENTRY(kernels){};
extern const char* const* const AITC_ENTRY(needs);
const char* const* const AITC_ENTRY(needs) = needs;
"""
"""What table.cpp says of an instruction set; the kernels of each model are listed beside its host code."""


def kernel_unit(texts: Sequence[tuple[str, str]], table: str = "") -> str:
    """All kernels in one file: their headers first, each in a namespace of its own."""
    headers = dict.fromkeys(h for _, text in texts for h in INCLUDE.findall(text))
    parts = [f'#include "{h}"' for h in headers]
    parts += [f"namespace in_{name} {{\n{INCLUDE.sub('', text)}\n}}" for name, text in texts]
    return "\n".join([*parts, table]) + "\n"


def host_unit(plans: Sequence[Plan], isa: str) -> str:
    """The host code of all models, each in a namespace of its own, and a function that chooses the one to load.

    As in a library of one, a model can be created where the processor has what code for ``isa`` needs, and AITC_ISA allows it.
    """
    parts = ['#include "aitc/host/device_cpu.h"', '#include "aitc/host/instance.h"', '#include "aitc/host/thread_pool.h"']
    parts += ["struct Kernels {};"]
    for plan in plans:
        files = emit(plan)
        table = re.sub(r"^#.*$", "", files["kernels.h"], flags=re.MULTILINE)
        declared = re.search(r'extern "C" \{.*?\n\}', files["table.cpp"], re.DOTALL)
        assert declared is not None
        model = INCLUDE.sub("", files["model.cpp"]).replace("choose_kernels()", "own_kernels")
        model = "\n".join(line for line in model.split("\n") if "aitc_model_v1" not in line)
        functions = re.sub(r"ENTRY.(k[0-9]+).", rf"\1_{isa}", declared[0])
        values = ", ".join(f"{k.entry}_{isa}" for k in plan.kernels)
        parts.append(
            f"namespace of_{plan.name} {{\nusing {plan.name}_instance = aitc_instance;\n{table}\n"
            f"{functions}\nconst Kernels own_kernels{{{values}}};\n{model}\n}}"
        )
    models = ", ".join(f"of_{plan.name}::{plan.name}_model" for plan in plans)
    parts.append(f"using Getter = const aitc_model* (*)();\nconst Getter all_models[] = {{{models}}};\nint chosen = 0;")
    parts.append('extern "C" __attribute__((visibility("default"))) void choose_model(int n) { chosen = n; }')
    parts.append('extern "C" __attribute__((visibility("default"))) const aitc_model* aitc_model_v1() { return all_models[chosen](); }')
    return "\n".join(parts) + "\n"


def build_many(plans: Sequence[Plan], folder: Path, compiler: str = "g++") -> Path:
    """A library with all ``plans`` (their names differ), and the weights of each beside it as NAME.weights.

    Raises RuntimeError with what the compiler said.
    """
    objects = compile_many(plans, folder, Build(compiler))
    library = folder / "libmany.so"
    _call([compiler, "-shared", *objects, "-o", str(library), "-pthread", "-ldl"])
    return library


@dataclass(frozen=True, slots=True)
class Build:
    """How to compile: for which instruction set (that of the tests if empty), for which processor of CMake's (this one if empty), and
    with which flags besides."""

    compiler: str = "g++"
    isa: str = ""
    processor: str = ""
    more: tuple[str, ...] = ()


def compile_many(plans: Sequence[Plan], folder: Path, build: Build) -> list[str]:
    """The objects of many models, and their weights. Raises RuntimeError with what the compiler said."""
    folder.mkdir(parents=True, exist_ok=True)
    isa = build.isa or isa_of_tests()
    calls = product.calls(isa, build.compiler, build.processor)
    renamed, texts = shared_kernels(plans)
    fast = () if os.environ.get("AITC_TEST_FULL") else ("-O0",)
    units = (
        ("kernels", kernel_unit(texts, TABLE), calls.kernel, ()),
        ("host", host_unit(renamed, isa), calls.host, fast),
    )
    objects = []
    for stem, text, flags, last in units:
        source = folder / f"{stem}.cpp"
        source.write_text(text, encoding="utf-8")
        objects.append(str(folder / f"{stem}.o"))
        _call([build.compiler, *flags, *last, *build.more, "-I", str(template_root() / "include"), "-c", str(source), "-o", objects[-1]])
    for plan in plans:
        if plan.weights_bytes:
            write_weights(plan, folder / f"{plan.name}.weights")
    return objects


PROGRAM = """
#include "aitc/host/command.h"
extern "C" void choose_model(int n);
extern "C" const aitc_model* aitc_model_v1();
static const char* const nodes[] = {nullptr};
int main(int argc, char** argv) {  // the number of a model, then the arguments of its own program
  choose_model(atoi(argv[1]));
  return aitc::host::command(aitc_model_v1(), nodes, argc - 1, argv + 1);
}
"""


def program_of_many(plans: Sequence[Plan], folder: Path, build: Build) -> Path:
    """One program of many models: its first argument is the number of the one to run, the others are as those of a model's own program.

    It holds all that it runs, so that another processor's emulator and sanitizers can take it. Raises RuntimeError with what the compiler
    said.
    """
    objects = compile_many(plans, folder, build)
    source, made = folder / "program.cpp", folder / "program"
    source.write_text(PROGRAM, encoding="utf-8")
    host = product.calls(build.isa or isa_of_tests(), build.compiler, build.processor).host
    flags = [*host, "-O0", *build.more, "-I", str(template_root() / "include")]
    _call([build.compiler, *flags, "-c", str(source), "-o", str(folder / "program.o")])
    _call([build.compiler, *build.more, str(folder / "program.o"), *objects, "-o", str(made), "-pthread", "-ldl"])
    return made


@cache
def version_of(compiler: str) -> str:
    """What a compiler says that it is."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout


def cached(command: Sequence[str], toolchain: str) -> tuple[list[str], dict[str, str]]:
    """A compiler call through aitc's object cache, and its environment: what an equal call gave is not made again."""
    launcher = [sys.executable, "-I", "-S", object_cache.__file__]
    return [*launcher, *command], {**os.environ, "AITC_CACHE_TOOLCHAIN": toolchain}


def _call(command: Sequence[str]) -> None:
    line, environment = cached(command, version_of(command[0]))
    done = subprocess.run(line, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr[:4000]}")


__all__ = ["build_many", "kernel_path", "plan_of"]
