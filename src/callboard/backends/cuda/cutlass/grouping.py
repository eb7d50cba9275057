"""Plans of products of groups of rows: a template where it is compiled, else a plain kernel; then the epilogue."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.choosing import Candidate, fastest
from callboard.backends.cuda.cutlass.engines import InSteps, launcher
from callboard.backends.cuda.cutlass.grouped_text import (
    GroupedCall,
    compiled_for,
    grouped_text,
    put_extents,
    why_no_groups,
)
from callboard.backends.cuda.cutlass.hopper import BYTES
from callboard.backends.cuda.cutlass.rules import refuses
from callboard.backends.cuda.cutlass.templated import Code, Source, TemplatePlan, compiled
from callboard.backends.cuda.cutlass.tilings import Tiling, tilings_of_groups
from callboard.core.library import plans
from callboard.core.op import info_of
from callboard.kernel.cutlass import GroupedGemm
from callboard.kernel.cutlass.fused import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["GroupedArgs", "grouped"]

OFFSETS = [field.name for field in info_of(GroupedGemm).dynamic].index("offsets")


class GroupedArgs(ctypes.Structure):
    """``GroupedArgs`` of ``data/cutlass.cu``."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "offsets", "sum", "group")),
        *((name, c_int64) for name in ("rows", "n", "k", "groups", "a_row", "a_col", "b_group", "b_row", "b_col")),
    )


class Whole(TemplatePlan):
    """A plan: one template for the product and its epilogue, behind the kernel that finds the groups.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        tiling: Of the template.
        image: The compiled template.
    """

    def __init__(self, library: "CudaCutlass", op: GroupedGemm, problem: Problem, tiling: Tiling, image: bytes) -> None:
        self.executed_by = f"cutlass: the grouped product and its epilogue, {tiling}"
        self._call = call = _call(tiling)
        put_extents(call, op, problem.result if op.out is None else op.out.layout)
        super().__init__(library, Code(image, call, "cutlass.grouped_gemm"), lambda: _plain(library, op, problem))

    def put(self, *dynamic: Any) -> int:
        call = self._call
        call.a, call.b, call.out, _, _, _, call.alpha, call.beta, call.offsets = dynamic
        bits: int = dynamic[0] | dynamic[1] | dynamic[2]
        return bits


@plans(GroupedGemm, refuses=refuses)
def grouped(library: "CudaCutlass", op: GroupedGemm) -> InSteps | Whole:
    """A template, whole or for the sums alone; else the plain kernel. Kernels of the epilogue follow the sums."""
    problem = op.problem()
    sums_of = compiled_for(op)
    asked = op.engine == "cutlass" or (op.engine == "auto" and sums_of is op)  # sums for an epilogue: see the guide
    found = _template(library, sums_of) if asked and why_no_groups(op, problem) is None else None
    if found is None:
        return _plain(library, op, problem)
    tiling, image, words = found
    if sums_of is op:
        whole = Whole(library, op, problem, tiling, image)
        whole.executed_by += words
        return whole
    call = _call(tiling)
    put_extents(call, sums_of, sums_of.problem().result)
    code = Code(image, call, "cutlass.grouped_gemm")

    def make(sums: int, group: int, scratch: int) -> tuple[Any, Callable[[], None], str]:
        call.out, call.group = sums, group
        simple, _, _ = _kernel(library, op)(sums, group)

        def multiply(stream: "CudaStream", dynamic: Any) -> None:
            if (dynamic[0] | dynamic[1]) & BYTES - 1:
                simple(stream, dynamic)
                return
            call.a, call.b, call.offsets = dynamic[0], dynamic[1], dynamic[OFFSETS]
            code(stream, scratch)

        return multiply, lambda: None, f"cutlass: the grouped product, {tiling}{words}"

    return InSteps(library, op, problem, (4 * problem.result.shape[0], code.nbytes), make, groups=0)


def _template(library: "CudaCutlass", op: GroupedGemm) -> tuple[Tiling, bytes, str] | None:
    """The fastest of the compiled templates with words about it; None if there are none."""
    problem = op.problem()
    tilings = tilings_of_groups(op.a.shape[0], op.b.shape[0], op.b.shape[2])
    sources = [Source(tiling, grouped_text(op, tiling)) for tiling in tilings]
    found = compiled(library, op.engine, "cutlass.grouped_gemm", sources)
    if not found:
        return None

    def candidate(source: Source, image: bytes) -> Candidate:
        return Candidate(source.key(), lambda own: Whole(own, op, problem, source.tiling, image))

    at, words = fastest(library, op, problem, [candidate(*one) for one in found])
    source, image = found[at]
    return source.tiling, image, words


def _call(tiling: Tiling) -> GroupedCall:
    return GroupedCall(alpha=1.0, swizzle=tiling.swizzle, raster=tiling.raster)


def _plain(library: "CudaCutlass", op: GroupedGemm, problem: Problem) -> InSteps:
    return InSteps(library, op, problem, (4 * problem.result.shape[0],), _kernel(library, op), groups=0)


def _kernel(library: "CudaCutlass", op: GroupedGemm) -> Callable[[int, int], tuple[Any, Callable[[], None], str]]:
    """The kernel of ``data/cutlass.cu``, which reads the offsets on the device."""
    (rows, k), (groups, _, n) = op.a.shape, op.b.shape

    def make(sums: int, group: int) -> tuple[Any, Callable[[], None], str]:
        args = GroupedArgs(sum=sums, group=group, rows=rows, n=n, k=k, groups=groups)
        args.a_row, args.a_col = op.a.strides
        args.b_group, args.b_row, args.b_col = op.b.strides
        name = f"grouped_{op.a.dtype.name}_{op.b.dtype.name}"
        launch = launcher(library, name, -(-rows // 32) * -(-n // 32), args)

        def multiply(stream: "CudaStream", dynamic: Any) -> None:
            args.a, args.b, args.offsets = dynamic[0], dynamic[1], dynamic[OFFSETS]
            launch(stream.native)

        return multiply, lambda: None, "custom kernel: the grouped product"

    return make
