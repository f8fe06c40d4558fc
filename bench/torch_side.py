"""PyTorch's contenders: eager, its CUDA graph, torch.compile, and torch.compile's CUDA graph. Device events throughout."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bench.measure import Sampler

Call = Callable[[], object]
CONTENDERS = ("eager", "eager_graph", "compile", "compile_graph")


class TorchSide:
    """A catalog module on the GPU in half precision, with fixed inputs.

    Images and convolutions are channels-last, which is how PyTorch is fast with them. Floating-point inputs are cast to
    `dtype` beforehand, so PyTorch pays for no cast.
    """

    def __init__(self, module: torch.nn.Module, inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        self.module = module.to("cuda", dtype)
        self.inputs = {k: v.cuda().to(dtype) if v.is_floating_point() else v.cuda() for k, v in inputs.items()}
        if any(v.dim() == 4 for v in self.inputs.values()):
            self.module = self.module.to(memory_format=torch.channels_last)
            self.inputs = {k: _channels_last(v) for k, v in self.inputs.items()}
        self._compiled: Call | None = None

    def call(self, contender: str) -> Call:
        """What runs the network once, ready to be timed (compiled and captured). Whatever torch raises."""
        if contender == "eager":
            return self._eager
        if contender == "eager_graph":
            return _captured(self._eager)
        if self._compiled is None:
            torch._dynamo.reset()  # else a second batch size would be compiled for dynamic shapes
            compiled = torch.compile(self.module, dynamic=False)
            self._compiled = _without_grad(lambda: compiled(**self.inputs))
            self._compiled()
        return self._compiled if contender == "compile" else _captured(self._compiled)

    def _eager(self) -> object:
        with torch.inference_mode():
            return self.module(**self.inputs)

    def outputs(self) -> tuple[torch.Tensor, ...]:
        """The eager results in float32, on the CPU."""
        result = self._eager()
        values = result if isinstance(result, tuple) else (result,)
        return tuple(v.float().cpu() for v in values if isinstance(v, torch.Tensor))

    def operations(self) -> int:
        """Floating-point operations of one call, a multiply-add counted as two."""
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter, torch.no_grad():
            self.module(**self.inputs)
        return int(counter.get_total_flops())

    def weight_bytes(self) -> int:
        """Bytes of all parameters, tied ones once."""
        return sum(p.numel() * p.element_size() for p in self.module.parameters())


def _channels_last(value: torch.Tensor) -> torch.Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def _without_grad(call: Call) -> Call:
    def run() -> object:
        with torch.no_grad():
            return call()

    return run


def _captured(call: Call) -> Call:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = call()

    def replay() -> object:
        graph.replay()
        return kept

    return replay


def events(call: Call) -> Sampler:
    """Samples of `call` by device events, one pair a call, on the current stream; the queue is emptied at the end."""

    def sample(calls: int) -> list[float]:
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
        for start, stop in pairs:
            start.record()
            call()
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1e3 for start, stop in pairs]

    return sample
