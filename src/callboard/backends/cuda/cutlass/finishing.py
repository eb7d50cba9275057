"""The second half of a product: the epilogue's kernels over sums in scratch memory."""

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.text import THREADS, epilogue_text
from callboard.backends.cuda.launching import kernel_launcher
from callboard.core.layout import Layout
from callboard.core.op import info_of
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Fused, Problem, reductions_of

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Finish", "steps_of"]

MAX_BLOCKS = 1 << 16
"""Enough to fill any GPU many times; the kernel steps over the rest."""

Steps = tuple[int, int, int]
"""Distances in elements of matrices (or groups), rows and columns."""


class Finish:
    """Enqueue the epilogue: ``finish(stream, dynamic)`` with the fields of the message, in order.

    Args:
        device: The device.
        op: The message, with placeholders.
        problem: Its shapes.
        sums: Address of the products, ``[rows, n]`` without gaps.
        groups: Address of the group of each row; 0 if there are none.
        empty: The inner extent is 0: all products are 0.
    """

    def __init__(
        self, device: "CudaDevice", op: Fused[Any], problem: Problem, sums: int, groups: int, empty: bool
    ) -> None:
        shape = problem.result.shape
        n = shape[-1]
        rows = problem.result.size // n if n else 0
        stack = rows // problem.stacks if problem.stacks and not problem.by_group else rows
        names = op.names
        fields: list[Any] = [("sum", c_void_p), ("groups", c_void_p)]
        fields += [(name, c_int64) for name in ("rows", "n", "stack", "empty")]
        fields += [("alpha", c_double), ("beta", c_double)]
        arrays = ["out", *(["add"] if op.c is not None else []), *(f"in_{name}" for name in names)]
        for name in arrays:
            fields += [(f"p_{name}", c_void_p), *((f"{step}_{name}", c_int64) for step in "src")]
        nodes = reductions_of(op.epilogue)
        fields += [(f"reduced{i}", c_void_p) for i in range(len(nodes))]
        args: Any = type("Args", (ctypes.Structure,), {"_fields_": tuple(fields)})()
        args.sum, args.groups = sums, groups
        args.rows, args.n, args.stack, args.empty = rows, n, max(stack, 1), int(empty)
        kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
        layouts = {"out": (problem.result if op.out is None else op.out.layout, "matrix")}
        if op.c is not None:
            layouts["add"] = op.c.layout, "matrix"
        layouts |= {f"in_{name}": (one.layout, kinds[name]) for name, one in zip(names, op.inputs, strict=True)}
        for name, (layout, kind) in layouts.items():
            found = steps_of(layout, kind, problem)
            assert found is not None
            for step, distance in zip("src", found, strict=True):
                setattr(args, f"{step}_{name}", distance)
        inputs = {name: one.dtype for name, one in zip(names, op.inputs, strict=True)}
        text = epilogue_text(
            op.epilogue,
            op.accumulated,
            op.computed,
            problem.result.dtype,
            None if op.c is None else op.c.dtype,
            inputs,
            problem.by_group,
        ).encode()
        self._args = args
        self._launches: list[Callable[[int], None]] = []
        for i, node in enumerate(nodes):
            blocks = rows if node.how.endswith("row") else -(-n // 32) * max(problem.stacks, 1)
            if blocks:
                self._launches.append(self._launcher(device, text, f"reduce{i}", blocks))
        if rows and n:
            blocks = min(-(-rows * n // THREADS), MAX_BLOCKS)
            self._launches.append(self._launcher(device, text, "finish", blocks))  # last: out may be c
        at = {field.name: i for i, field in enumerate(info_of(type(op)).dynamic)}
        self._at = [at[name] for name in ("out", "c", "inputs", "reductions", "alpha", "beta")]
        self._names = [f"p_in_{name}" for name in names], [f"reduced{i}" for i in range(len(nodes))]
        self._adds = op.c is not None
        self.launches = len(self._launches)

    def _launcher(self, device: "CudaDevice", text: bytes, name: str, blocks: int) -> Callable[[int], None]:
        function = device.kernels.compile("cutlass_epilogue", text, name)
        return kernel_launcher(device.driver, function, blocks, (THREADS, 1), self._args)

    def __call__(self, stream: "CudaStream", dynamic: Any) -> None:
        args = self._args
        out, c, inputs, reductions, alpha, beta = (dynamic[at] for at in self._at)
        args.p_out, args.alpha, args.beta = out, alpha, beta
        if self._adds:
            args.p_add = c
        for names, addresses in zip(self._names, (inputs, reductions), strict=True):
            for name, address in zip(names, addresses or (), strict=True):
                setattr(args, name, address)
        for launch in self._launches:
            launch(stream.native)


def steps_of(layout: Layout, kind: str, problem: Problem) -> Steps | None:
    """The steps by which the kernels address an array; None if its rows have no common distance."""
    strides = layout.strides
    if kind == "tensor":
        return 0, 0, 0
    if kind == "column":
        return (strides[0], 0, strides[1]) if len(strides) == 2 else (0, 0, strides[0])
    leading = strides if kind == "row" else strides[:-1]
    column = 0 if kind == "row" else strides[-1]
    extents = problem.result.shape[:-1]
    if len(leading) == 2 and problem.stacks:
        return leading[0], leading[1], column
    step = leading[-1] if leading else 0
    reach = step
    for extent, stride in zip(reversed(extents), reversed(leading), strict=True):
        if extent > 1 and stride != reach:
            return None
        reach *= extent
    return 0, step, column
