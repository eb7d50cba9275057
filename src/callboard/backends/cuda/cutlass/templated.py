"""Plans of CUTLASS's templates: one kernel for the product and its epilogue."""

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.choosing import Candidate
from callboard.backends.cuda.cutlass.hopper import BYTES, batch_step, far_step
from callboard.backends.cuda.cutlass.templates import Call, gemm_text, why_no_template
from callboard.backends.cuda.cutlass.templates.scales import scale_step, scales_of
from callboard.backends.cuda.cutlass.tilings import Tiling, tilings_of
from callboard.core.errors import LibraryError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["ARCHITECTURE", "Code", "Source", "TemplatePlan", "Templated", "compiled", "put_steps", "templated"]

HOPPER = (9, 0)
ARCHITECTURE = "90a"


class Source(NamedTuple):
    """A template that may serve a message."""

    tiling: Tiling
    text: str

    def key(self) -> str:
        """What its speed depends on."""
        tiling = self.tiling
        return f"{tiling} {tiling.swizzle} {tiling.raster} {hashlib.sha256(self.text.encode()).hexdigest()}"


def templated(
    library: "CudaCutlass", op: Gemm, problem: Problem, otherwise: "Callable[[CudaCutlass], Any]"
) -> list[Candidate]:
    """The templates that can serve a message; none if another engine is to serve it.

    Args:
        library: The library.
        op: The message, with placeholders. With ``engine="cutlass"`` a template is compiled if need be.
        problem: Its shapes.
        otherwise: Makes the plan for operands that start elsewhere than templates need.

    Raises:
        UnsupportedOp, BackendUnavailable, LibraryError: See :func:`compiled`.
    """
    if op.engine == "vendor" or why_no_template(op, problem) is not None:
        return []
    sources = [Source(tiling, gemm_text(op, problem, tiling)) for tiling in tilings_of(op, problem)]

    def candidate(source: Source, image: bytes) -> Candidate:
        return Candidate(
            source.key(), lambda own: Templated(own, op, problem, source.tiling, image, lambda: otherwise(own))
        )

    return [candidate(*one) for one in compiled(library, op.engine, "cutlass.gemm", sources)]


class Code:
    """A compiled template with its arguments. Calling it enqueues its kernels.

    Args:
        image: The shared library.
        call: The arguments, with extents and steps; addresses are put in before each call.
        tag: Of the op.

    Attributes:
        nbytes: Of the scratch that a call needs.
    """

    def __init__(self, image: bytes, call: ctypes.Structure, tag: str) -> None:
        self._tag = tag
        self._code = nvcc.library_of(image)
        self._run: Any = self._code.callboard_launch
        self._run.argtypes, self._run.restype = (c_void_p, c_void_p, c_void_p), c_int
        self._call = call
        measure: Any = self._code.callboard_workspace
        measure.argtypes, measure.restype = (c_void_p,), c_int64
        self.nbytes: int = measure(ctypes.addressof(call))
        if self.nbytes < 0:
            raise LibraryError(f"{tag}: the template does not take these extents; leave engine out", "cutlass", 1)

    def __call__(self, stream: "CudaStream", scratch: int) -> None:
        code = self._run(ctypes.addressof(self._call), scratch, stream.native)
        if code:
            raise LibraryError(f"{self._tag}: CUTLASS returns status {code}", "cutlass", code)


class TemplatePlan:
    """A plan: one template with scratch of its own, or another plan for operands that start elsewhere than it needs.

    Args:
        library: The library.
        code: The template.
        otherwise: Makes the other plan.
    """

    executed_by: str

    def __init__(self, library: "CudaCutlass", code: Code, otherwise: Callable[[], Any]) -> None:
        self._library, self._code = library, code
        self._room: Any = library.workspace.lease(max(code.nbytes, 256))
        self._otherwise: Any = None
        try:
            self._otherwise = otherwise()
        except BaseException:  # whatever ends it: nothing else holds the scratch
            self.close()
            raise

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        if self.put(*dynamic) & BYTES - 1:
            self._otherwise(stream, *dynamic)
        else:
            self._code(stream, self._room.memory.address)

    def put(self, *dynamic: Any) -> int:
        """Put the addresses and numbers of a call into the template's arguments.

        Returns:
            The bits of all addresses; the template needs multiples of 16 bytes.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release the scratch and the other plan; all their work is done."""
        if self._room is not None:
            self._library.workspace.leave(self._room)
            self._room = None
        if self._otherwise is not None:
            self._otherwise.close()
            self._otherwise = None


def compiled(library: "CudaCutlass", engine: str, tag: str, sources: Sequence[Source]) -> list[tuple[Source, bytes]]:
    """The templates whose binaries are in the cache, with these.

    Args:
        library: The library.
        engine: Of the message; ``"cutlass"``: if there are none, the first template is compiled.
        tag: Of the op.
        sources: The templates that may serve it.

    Raises:
        UnsupportedOp: ``engine`` is ``"cutlass"``, and the device is none of Hopper.
        BackendUnavailable, LibraryError: Likewise, and nvcc is missing or refuses the template.
    """
    capability = library.device.info.compute_capability
    if capability != HOPPER:
        if engine == "cutlass":
            raise UnsupportedOp(
                f"cuda, {tag}: the templates are for compute capability 9.0, and this device has "
                f"{'.'.join(map(str, capability))}; leave engine out"
            )
        return []
    found = [one for one in sources if nvcc.is_built(one.text, ARCHITECTURE)]
    if not found and engine == "cutlass":
        found = [sources[0]]
    return [(one, nvcc.built(one.text, ARCHITECTURE)) for one in found]


class Templated(TemplatePlan):
    """A plan: one launch of a compiled template.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        tiling: Of the template.
        image: The compiled template.
        otherwise: Makes the plan for operands that start elsewhere than at multiples of 16 bytes.
    """

    def __init__(
        self,
        library: "CudaCutlass",
        op: Gemm,
        problem: Problem,
        tiling: Tiling,
        image: bytes,
        otherwise: Callable[[], Any],
    ) -> None:
        self.executed_by = f"cutlass: one launch, {tiling}"
        self._call = call = Call(swizzle=tiling.swizzle, raster=tiling.raster, splits=tiling.splits)
        put_steps(call, op, problem)
        call.alpha, call.beta = 1.0, 0.0
        for name in ("a", "b", "c", "out", "scale_a", "scale_b"):
            setattr(call, name, 1 << 20)  # no address is read; a check of its alignment passes
        super().__init__(library, Code(image, call, "cutlass.gemm"), otherwise)

    def put(self, *dynamic: Any) -> int:
        call = self._call
        call.a, call.b, call.out, call.c, inputs, _, call.alpha, call.beta, call.scale_a, call.scale_b = dynamic
        a, b, out, c, *_, scale_a, scale_b = dynamic
        bits: int = a | b | out | (c or 0) | (scale_a or 0) | (scale_b or 0)
        for i, address in enumerate(inputs or ()):
            bits |= address
            call.inputs[i] = address
        return bits


def put_steps(call: Call, op: Gemm, problem: Problem) -> None:
    """Put the extents and steps of a message into a template's arguments."""
    out = problem.result if op.out is None else op.out.layout
    *_, m, n = problem.result.shape
    call.m, call.n, call.k, call.batch = m, n, op.a.shape[-1], problem.stacks or 1
    layouts: list[tuple[str, Layout]] = [("a", op.a.layout), ("b", op.b.layout), ("out", out)]
    layouts += [("c", op.c.layout)] if op.c is not None else []
    for name, layout in layouts:
        setattr(call, f"{name}_step", far_step(layout))
        setattr(call, f"{name}_batch", batch_step(layout))
    for scale in scales_of(op):
        if scale.of_blocks:
            setattr(call, f"{scale.name}_step", scale_step(scale))
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for i, (name, one) in enumerate(zip(op.names, op.inputs, strict=True)):
        layout = one.layout
        if kinds[name] == "matrix":
            call.rows[i], call.batches[i] = far_step(layout), batch_step(layout)
        elif len(layout.shape) == 2:
            call.batches[i] = layout.strides[0]
