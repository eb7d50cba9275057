"""When there is no template for a product, and why."""

from callboard.backends.cuda.cutlass.hopper import BYTES, ELEMENTS, far, far_steps
from callboard.backends.cuda.cutlass.templates.call import MAX_INPUTS
from callboard.backends.cuda.cutlass.templates.product import INPUT, RESULTS
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

__all__ = ["why_no_template"]


def why_no_template(op: Gemm, problem: Problem) -> str | None:
    """The reason why there is no template for a message, with a cure; None if there is one."""
    dtype = problem.result.dtype
    if op.a.dtype.name not in INPUT or op.b.dtype is not op.a.dtype:
        return f"a is {op.a.dtype} and b is {op.b.dtype}; its templates have {', '.join(INPUT)}"
    if op.a.dtype.name == "f32" and not op.tf32:
        return "a is f32, and its templates round f32 to TF32: pass tf32=True, or leave engine out"
    results = RESULTS[INPUT[op.a.dtype.name].sums]
    if dtype.name not in results or (op.c is not None and op.c.dtype.name not in ELEMENTS):
        return f"out is {dtype}; its templates have {', '.join(results)}"
    if op.reductions:
        return "the epilogue has reductions; leave engine out"
    if len(op.inputs) > MAX_INPUTS:
        return f"the epilogue has {len(op.inputs)} arrays, its templates at most {MAX_INPUTS}"
    return _placed(op, problem) or _arrays(op, problem)


def _placed(op: Gemm, problem: Problem) -> str | None:
    """Layouts that TMA and the tensor cores can load."""
    out = problem.result if op.out is None else op.out.layout
    layouts = {"a": op.a.layout, "b": op.b.layout, "c": None if op.c is None else op.c.layout, "out": out}
    for name, layout in layouts.items():
        if layout is not None and (
            far(layout) is None or any(s * layout.dtype.itemsize % BYTES for s in far_steps(layout))
        ):
            return (
                f"{name} is {layout!r}; its rows (or columns) must be adjacent and start at multiples of {BYTES} bytes"
            )
    if op.a.dtype.itemsize != 2 and (far(op.a.layout)[0] != 0 or far(op.b.layout)[0] != 1):
        words = "fp8" if op.a.dtype.name.startswith("f8") else op.a.dtype.name
        return (
            f"{words} factors need their inner axis adjacent: a row-major (dev.copy(a)), b transposed (dev.copy(b.T).T)"
        )
    return None


def _arrays(op: Gemm, problem: Problem) -> str | None:
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for name, one in zip(op.names, op.inputs, strict=True):
        if kinds[name] != "tensor" and one.shape[-1] > 1 and one.strides[-1] != 1:
            return f"{name} is {one.layout!r}; its last axis must have no gaps: pass dev.copy({name})"
        if kinds[name] == "matrix" and any(s * one.dtype.itemsize % BYTES for s in far_steps(one.layout)):
            return f"{name} is {one.layout!r}; its rows must start at multiples of {BYTES} bytes: pass dev.copy({name})"
    sizes = (problem.result.dtype.itemsize, *(x.dtype.itemsize for x in op.inputs), 4)
    if problem.result.shape[-1] * min(sizes) % BYTES:
        return f"out has {problem.result.shape[-1]} columns; rows of all arrays must be whole units of {BYTES} bytes"
    return None
