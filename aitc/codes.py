"""What each error code means: ``aitc explain CODE``. A test holds this table and the codes in the source together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Explanation:
    """``text`` says why it happens and what to do."""

    title: str
    text: str


CODES: dict[str, Explanation] = {
    # B: build
    "B01": Explanation(
        "a tool of the toolchain is missing",
        "aitc looks for compilers in this order: a flag, the environment (CXX, AITC_NVCC, CUDA_HOME, "
        "AITC_HIPCC, ROCM_PATH), PATH, pip packages, the usual folders. `aitc list toolchains` shows what was "
        "found. For CUDA `pip install aitc[cuda]` brings nvcc; for HIP install ROCm, or Debian's hipcc "
        "libamdhip64-dev rocm-device-libs and, for gfx942, clang-19 lld-19 clang-tools-19.",
    ),
    "B02": Explanation(
        "the compiler failed on generated code",
        "The message names the kernel and the ONNX nodes it was made from. Generated code that does not "
        "compile is a defect of aitc, unless the compiler itself is broken or out of memory (then --jobs 1 "
        "helps). Report it with the output of --dump.",
    ),
    "B03": Explanation(
        "CMake cannot configure the generated project",
        "Mostly the compiler that was found cannot link a program. `aitc list toolchains` shows which one it "
        "is; CXX names another.",
    ),
    "B04": Explanation(
        "the output folder or a temporary file cannot be written",
        "No permission, no space, or the path is a file. Choose another folder with -o; TMPDIR says where "
        "objects are built, AITC_CACHE_DIR where they are kept. What was in the output folder before is "
        "untouched.",
    ),
    "B05": Explanation(
        "the compiler is too old for the target",
        "The nvcc or hipcc that was found does not know the target's architecture. `aitc list toolchains` "
        "shows which one that is; a flag or the environment names another.",
    ),
    "B06": Explanation(
        "the output folder holds what aitc did not write",
        "A compile replaces what an earlier one wrote, and nothing else: files named after a model are aitc's where its "
        "NAME.json lies beside them, src/ is where its files are those that src/aitc.sha256 lists. Choose another folder "
        "with -o, or move away what the message names. What was there is untouched.",
    ),
    # C: command line
    "C01": Explanation(
        "interrupted",
        "Ctrl-C or SIGTERM. Compilers were stopped, and nothing half-written is left: the output folder is as it was.",
    ),
    "C02": Explanation(
        "a wrong flag or argument",
        "The message says which. `aitc COMMAND --help` lists all flags with their values.",
    ),
    "C03": Explanation(
        "the system refused to read or write a file",
        "The message names the file and the system's reason.",
    ),
    "C04": Explanation(
        "out of memory",
        "Compilers take up to 0.7 GB each: try --jobs 1. A model needs about twice its weights.",
    ),
    # I: import
    "I01": Explanation(
        "the model file cannot be read",
        "It does not exist, is a folder, or may not be read.",
    ),
    "I02": Explanation(
        "the file is not an ONNX model",
        "It is empty, truncated (an interrupted download, or a Git LFS pointer), or of another kind. "
        "`onnx.load(path)` in Python fails on it as well.",
    ),
    "I03": Explanation(
        "the graph does not hold together",
        "A node reads a value that nothing makes, nodes form a cycle (nodes out of order are sorted), a "
        "name is defined twice, or an output is declared with another element type than the graph computes. The "
        "exporter or a tool that edited the file made a mistake; `onnx.checker.check_model(path, full_check=True)` "
        "reports the same.",
    ),
    "I04": Explanation(
        "a node is wrong, or needs to know more",
        "Its inputs have types or shapes that the operator refuses, or an attribute is missing, unknown or "
        "out of range; some attributes need a static dim, which --dim NAME=SIZE gives. The message shows the "
        "node and its inputs.",
    ),
    "I05": Explanation(
        "a form of this operator is not supported",
        "The operator is known, but not with this attribute, type or optional output. All such nodes are "
        "listed at once.",
    ),
    "I06": Explanation(
        "an operator is not supported",
        "No importer function and no ONNX function body is known for it. `aitc list ops` prints what is. "
        "Domains are kept apart: an operator of com.microsoft is another one than that of the same name of "
        "ai.onnx.",
    ),
    "I07": Explanation(
        "the opset is unknown",
        "The model uses a newer opset than the installed onnx package knows. Install a newer onnx, or convert "
        "the model with onnx.version_converter.",
    ),
    "I08": Explanation(
        "external data is missing, too short, or outside of the model's folder",
        "Weights beside the model are named relative to its folder. Copy them there. Paths that leave the "
        "folder are refused: a model must not make a compiler read any file it likes.",
    ),
    "I09": Explanation(
        "an input or output of the model is not a tensor that aitc compiles",
        "Sequences, optionals, strings and complex numbers have no place in a binary's interface, and an input needs at least "
        "a rank; --input NAME=... gives a shape.",
    ),
    "I10": Explanation(
        "--dim or --input does not fit the model",
        "The message lists the model's dims or inputs. Names are the model's own.",
    ),
    "I11": Explanation(
        "versions of the file contradict each other",
        "The file imports one domain at two versions, or none for a domain that it uses.",
    ),
    "I12": Explanation(
        "a constant's data is damaged",
        "Its bytes do not fit its type and shape.",
    ),
    "I13": Explanation(
        "a defect of aitc while importing a node",
        "Please report it with the model, or with the node that the message shows.",
    ),
    "I14": Explanation(
        "the model is larger than its file looks",
        "Functions that call each other several times, or loops in loops, stand for more nodes than AITC_MAX_NODES, "
        "or are nested too deep. A file of an exporter does not; AITC_MAX_NODES=... allows more nodes.",
    ),
    # O: output
    "O02": Explanation(
        "a dump cannot be written",
        "The folder given with --dump (or AITC_DUMP) cannot be made or written, or it holds files of the names of a dump that "
        "are none: only what an earlier dump wrote is replaced.",
    ),
    "O03": Explanation(
        "a file that the command needs is not there",
        "Mostly the folder is not the -o of an `aitc compile`, or an .npy file is missing.",
    ),
    # P: passes
    "P01": Explanation(
        "--keep-fp32 is no regular expression",
        "The value is the name of an ONNX node, an operator, or a regular expression that matches a whole "
        "name or operator.",
    ),
    "P02": Explanation(
        "--keep-fp32 matches no node",
        "No node of the model has that name or operator after fusion. `aitc show --stage fuse` lists them.",
    ),
    # R: running
    "R01": Explanation(
        "there is no compiled model to run",
        "The library or executable does not exist, is of another version of aitc, or cannot be loaded. "
        "Compile the model again.",
    ),
    "R02": Explanation(
        "a compiled model does not take this input",
        "The message names the input, the type and shape that are expected, and what was given. Shapes may "
        "vary only in the model's symbolic dims, within their bounds.",
    ),
    "R03": Explanation(
        "a compiled model failed while running",
        "The message is the model's own: no device, a driver that is too old for it, not enough memory on the "
        "device, weights that cannot be read.",
    ),
    "R04": Explanation(
        "a compiled model did not finish",
        "A run took longer than --verify-timeout (ten minutes, where that is not given) and was ended.",
    ),
    "R05": Explanation(
        "a compiled model crashed",
        "A defect of aitc: please report it with the model.",
    ),
    # S: schedule
    "S01": Explanation(
        "no kernel takes a node",
        "Each kernel says why not. On cpu every operator that imports has a kernel; please report one that "
        "has not. On a GPU a type may be missing: --precision or --keep-fp32 may help.",
    ),
    "S02": Explanation(
        "a symbolic dim cannot be read from the inputs",
        "The size appears in the inputs' shapes only inside an expression. Fix it with --dim NAME=SIZE.",
    ),
    "S03": Explanation(
        "a tuning table cannot be used",
        "The file given with --tuning (or AITC_TUNING), or that of the cache, cannot be read or is not JSON "
        "lines of problem, config and us; or that of `aitc tune` (--table) cannot be written, which it says before it "
        "measures. `--tuning none` compiles without any.",
    ),
    # T: targets
    "T01": Explanation(
        "no target has that name",
        "`aitc list targets` prints all names; h200, a100, mi250 and the like are aliases.",
    ),
    "T02": Explanation(
        "targets of several APIs",
        "One binary is for cpu, for CUDA or for HIP. Compile once for each.",
    ),
    "T03": Explanation(
        "there is no device to measure on",
        "`aitc tune` measures on the device that it tunes for, and the machine has none of that architecture. Run it on one "
        "that has; its table (tuning/<target>.json in the cache folder, or --table) can be copied to where models are "
        "compiled, which needs no device. --emulate tries the way without one.",
    ),
    # V: verification
    "V01": Explanation(
        "the binary does not match the reference",
        "The outputs differ by more than rounding explains. The binary is in <output>.failed, and the output "
        "folder is as it was. --bisect names the first ONNX node whose value differs. Please report it. With "
        "--precision fp16 or bf16 first see whether --keep-fp32 on the nodes that overflow helps.",
    ),
    "V02": Explanation(
        "the binary could not be verified",
        "--require-verify was given, and this machine has no device of the target, or the reference "
        "(onnxruntime, onnx.reference) cannot run the model, or every output depends on numbers that the "
        "model draws at random, or every output is NaN, zero, constant or empty on made-up inputs.",
    ),
    "V03": Explanation(
        "a warning: the binary was not verified",
        "It is complete, and nothing has shown that it computes what the model says: this machine has no device of the target, or the "
        "reference (onnxruntime, onnx.reference) does not take the inputs that were made up, crashes, or takes longer than "
        "--verify-timeout. Give inputs with --input NAME=FILE.npy or --data FOLDER, say how dims depend on each other with --dim "
        "total=past+seq, or verify on another machine with `aitc verify`. --require-verify makes it an error (V02, exit code 6).",
    ),
    # X: defects
    "X01": Explanation(
        "a defect of aitc",
        "Not a mistake of yours. Please report it with the command, the model, and the traceback that -v prints.",
    ),
}
