"""Plans of products of groups of rows: a template where it is compiled, else a plain kernel; then the epilogue."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.choosing import Candidate, fastest
from callboard.backends.cuda.cutlass.engines import InSteps, launcher
from callboard.backends.cuda.cutlass.grouped_text import (
    ADDEND,
    GroupedCall,
    grouped_text,
    leaves_of,
    put_extents,
    sums_of,
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

TAG = "cutlass.grouped_gemm"
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
        self._loaded = [leaf.place for leaf in leaves_of(op) or () if leaf.kind == "matrix"]
        super().__init__(library, Code(image, call, TAG), lambda: _plain(library, op, problem))

    def put(self, *dynamic: Any) -> int:
        call = self._call
        call.a, call.b, call.out, c, inputs, _, call.alpha, call.beta, call.offsets = dynamic
        for place, address in enumerate(inputs or ()):
            call.arrays[place] = address
        call.arrays[ADDEND] = c
        bits: int = dynamic[0] | dynamic[1] | dynamic[2]
        for place in self._loaded:
            bits |= call.arrays[place] or 0
        return bits


@plans(GroupedGemm, refuses=refuses)
def grouped(library: "CudaCutlass", op: GroupedGemm) -> InSteps | Whole:
    """The fastest of the templates that are compiled, whole and for the sums alone; the plain kernel if none is."""
    problem = op.problem()
    candidates = [] if op.engine == "vendor" or why_no_groups(op, problem) else _templates(library, op, problem)
    if not candidates:
        return _plain(library, op, problem)
    at, words = fastest(library, op, problem, candidates)
    plan: InSteps | Whole = candidates[at].make(library)
    plan.executed_by += words
    return plan


def _templates(library: "CudaCutlass", op: GroupedGemm, problem: Problem) -> list[Candidate]:
    """One launch where the tree has no reductions; or sums by a template that serves every tree, then its kernels."""
    tilings = tilings_of_groups(op.a.shape[0], op.b.shape[0], op.b.shape[2], op.a.dtype.itemsize)
    engine: str = op.engine
    found = []
    if leaves_of(op) is not None:
        sources = [Source(tiling, grouped_text(op, tiling)) for tiling in tilings]
        for source, image in compiled(library, engine, TAG, sources):
            found.append(Candidate(source.key(), _whole(op, problem, source.tiling, image)))
        if found and not op.epilogue and op.c is None:
            return found
        engine = "auto"  # sums are not compiled for a tree that has a template of its own
    sums = sums_of(op)
    sources = [Source(tiling, grouped_text(sums, tiling)) for tiling in tilings]
    for source, image in compiled(library, engine, TAG, sources):
        found.append(Candidate(f"in steps {source.key()}", _in_steps(op, sums, problem, source.tiling, image)))
    return found


def _whole(op: GroupedGemm, problem: Problem, tiling: Tiling, image: bytes) -> "Callable[[CudaCutlass], Whole]":
    return lambda own: Whole(own, op, problem, tiling, image)


def _in_steps(
    op: GroupedGemm, sums: GroupedGemm, problem: Problem, tiling: Tiling, image: bytes
) -> "Callable[[CudaCutlass], InSteps]":
    """Makes the plan of a template for the sums, with the kernels of the epilogue behind it."""

    def made(own: "CudaCutlass") -> InSteps:
        call = _call(tiling)
        put_extents(call, sums, sums.problem().result)
        code = Code(image, call, TAG)

        def make(target: int, group: int, scratch: int) -> tuple[Any, Callable[[], None], str]:
            call.out, call.group = target, group
            simple, _, _ = _kernel(own, op)(target, group)

            def multiply(stream: "CudaStream", dynamic: Any) -> None:
                if (dynamic[0] | dynamic[1]) & BYTES - 1:
                    simple(stream, dynamic)
                    return
                call.a, call.b, call.offsets = dynamic[0], dynamic[1], dynamic[OFFSETS]
                code(stream, scratch)

            return multiply, lambda: None, f"cutlass: the grouped product, {tiling}"

        return InSteps(own, op, problem, (4 * problem.result.shape[0], code.nbytes), make, groups=0)

    return made


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
