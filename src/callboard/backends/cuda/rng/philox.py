"""Philox on the device: words are made into elements in registers and never written themselves."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.rng.arguments import FillArgs, launcher

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["philox"]

WORDS = {"philox": 4, "philox64": 8}
"""Words of a block, which one thread makes."""


def philox(
    device: "CudaDevice", kind: str, source: str, name: str, step: int, itemsize: int, args: FillArgs
) -> "Callable[[CudaStream, int, int, int], None]":
    """``run(stream, out, seed, position)``: enqueue a fill of ``args.count`` elements without gaps.

    Args:
        device: The device; its context is current.
        kind: ``philox`` or ``philox64``.
        source: ``data/<source>.cu`` with the kernels.
        name: Name of the distribution in the source.
        step: Words an element.
        itemsize: Bytes an element.
        args: The parameters of the distribution; the rest is set here.
    """
    words, count = WORDS[kind], args.count
    group = words // step
    whole, rest = count // group * group, count % group
    alignment = min(16, group * itemsize)
    aligned = launcher(device, source, f"{kind}_{name}", whole // group, args)
    cut = launcher(device, source, f"{kind}_{name}_cut", count // group + 2, args)
    end = launcher(device, source, f"{kind}_{name}_cut", 1, args)

    def run(stream: "CudaStream", out: int, seed: int, position: int) -> None:
        args.out, args.seed, args.position = out, seed, position
        if position % words or out % alignment or not whole:
            args.count = count
            cut(stream.native)
            return
        args.count = whole
        aligned(stream.native)
        if rest:
            args.out, args.position, args.count = out + whole * itemsize, position + whole * step, rest
            end(stream.native)

    return run
