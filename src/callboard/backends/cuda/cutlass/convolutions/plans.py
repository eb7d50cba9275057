"""Plans of convolutions: the fastest of the templates that are compiled and of patches with cuBLASLt's product."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.choosing import Candidate, fastest
from callboard.backends.cuda.cutlass.convolutions.flat import flattened, why_no_conv
from callboard.backends.cuda.cutlass.convolutions.patches import in_patches
from callboard.backends.cuda.cutlass.convolutions.text import ConvCall, conv_text, put_geometry
from callboard.backends.cuda.cutlass.convolutions.tiles import tilings_of_conv
from callboard.backends.cuda.cutlass.engines import InSteps
from callboard.backends.cuda.cutlass.rules import refuses
from callboard.backends.cuda.cutlass.templated import Code, Source, TemplatePlan, compiled, put_steps
from callboard.backends.cuda.cutlass.tilings import Tiling
from callboard.core.library import plans
from callboard.kernel.cutlass import Conv, ExplainConv
from callboard.kernel.cutlass.explain import Told
from callboard.kernel.cutlass.fused import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass

__all__ = ["Implicit", "conv", "explain", "sources_of"]

PLACE = 1 << 20
"""Stands for every address while a plan is made: none is read, but their alignment is checked."""


class Implicit(TemplatePlan):
    """A plan: one template for the convolution and its epilogue.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        tiling: Of the template.
        image: The compiled template.
    """

    def __init__(self, library: "CudaCutlass", op: Conv, problem: Problem, tiling: Tiling, image: bytes) -> None:
        self.executed_by = f"cutlass: one launch, {op.kind}, {tiling}"
        self._call = call = ConvCall(a=PLACE, b=PLACE, c=PLACE, out=PLACE, alpha=1.0)
        call.swizzle, call.raster, call.splits = tiling.swizzle, tiling.raster, tiling.splits
        flat = flattened(op, problem)
        put_steps(call, flat, flat.problem())
        put_geometry(call, op)
        super().__init__(library, Code(image, call, "cutlass.conv"), lambda: in_patches(library, op))

    def put(self, *dynamic: Any) -> int:
        call = self._call
        call.a, call.b, call.out, call.c, inputs, _, call.alpha, call.beta = dynamic
        bits: int = dynamic[0] | dynamic[1] | dynamic[2] | (dynamic[3] or 0)
        for i, address in enumerate(inputs or ()):
            bits |= address
            call.inputs[i] = address
        return bits


@plans(Conv, refuses=refuses)
def conv(library: "CudaCutlass", op: Conv) -> InSteps | Implicit:
    """A template where one is compiled, or asked for, and faster; else patches, a product and its epilogue."""
    problem = op.problem()
    if op.engine == "vendor" or why_no_conv(op, problem) is not None:
        return in_patches(library, op)
    found = compiled(library, op.engine, "cutlass.conv", sources_of(op))

    def candidate(source: Source, image: bytes) -> Candidate:
        return Candidate(
            f"{source.key()} {_geometry(op)}", lambda own: Implicit(own, op, problem, source.tiling, image)
        )

    candidates = [candidate(*one) for one in found]
    if op.engine == "auto":
        candidates.insert(0, Candidate(f"patches {_geometry(op)}", lambda own: in_patches(own, op)))
    at, words = fastest(library, op, problem, candidates)
    plan: InSteps | Implicit = candidates[at].make(library)
    plan.executed_by += words
    return plan


@plans(ExplainConv, refuses=refuses)
def explain(library: "CudaCutlass", op: ExplainConv) -> Callable[..., Told]:
    """The plan of the convolution is made, and says what executes it."""
    plan = conv(library, op.product())
    told = Told(plan.executed_by)
    plan.close()
    return lambda stream, *dynamic: told


def sources_of(op: Conv) -> list[Source]:
    """The templates that may serve a convolution; the first where none is measured."""
    problem = op.problem()
    return [Source(tiling, conv_text(op, problem, tiling)) for tiling in tilings_of_conv(op.kind)]


def _geometry(op: Conv) -> str:
    """What the speed depends on beside the extents of the result and the inner axis of ``a``."""
    _, filters, _ = op.shapes()
    return f"{filters[1:]} {op.stride} {op.dilation}"
