"""Plans of CUTLASS's templates: one kernel for the product and its epilogue."""

import ctypes
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.templates import BYTES, Call, batch_step, far_step, gemm_text, why_no_template
from callboard.core.errors import LibraryError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Templated", "templated"]

HOPPER = (9, 0)
ARCHITECTURE = "90a"


def templated(library: "CudaCutlass", op: Gemm, problem: Problem, otherwise: Any) -> "Templated | None":
    """The plan of a template; None if another engine is to serve the message.

    Args:
        library: The library.
        op: The message, with placeholders. With ``engine="cutlass"`` the template is compiled if need be.
        problem: Its shapes.
        otherwise: Makes the plan for operands that start elsewhere than templates need.

    Raises:
        UnsupportedOp: ``engine`` is ``"cutlass"``, and the device is none of Hopper.
        BackendUnavailable, LibraryError: Likewise, and nvcc is missing or refuses the template.
    """
    if op.engine == "vendor" or why_no_template(op, problem) is not None:
        return None
    capability = library.device.info.compute_capability
    if capability != HOPPER:
        if op.engine == "cutlass":
            raise UnsupportedOp(
                f"cuda, cutlass.gemm: the templates are for compute capability 9.0, and this device has "
                f"{'.'.join(map(str, capability))}; leave engine out"
            )
        return None
    text = gemm_text(op, problem)
    if op.engine == "auto" and not nvcc.is_built(text, ARCHITECTURE):
        return None
    return Templated(library, op, problem, nvcc.library_of(nvcc.built(text, ARCHITECTURE)), otherwise)


class Templated:
    """A plan: one launch of a compiled template.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        code: The compiled template.
        otherwise: Makes the plan for operands that start elsewhere than at multiples of 16 bytes.
    """

    executed_by = "cutlass: one launch"

    def __init__(self, library: "CudaCutlass", op: Gemm, problem: Problem, code: ctypes.CDLL, otherwise: Any) -> None:
        self._library = library
        self._room: Any = None
        self._otherwise: Any = None
        self._run: Any = code.callboard_launch
        self._run.argtypes, self._run.restype = (c_void_p, c_void_p, c_void_p), c_int
        self._keeps = code
        self._call = Call()
        _put_steps(self._call, op, problem)
        measure: Any = code.callboard_workspace
        measure.argtypes, measure.restype = (c_void_p,), c_int64
        self._call.alpha, self._call.beta = 1.0, 0.0
        for name in ("a", "b", "c", "out"):
            setattr(self._call, name, 1 << 20)  # no address is read; a check of its alignment passes
        size = measure(ctypes.addressof(self._call))
        if size < 0:
            raise LibraryError("cutlass.gemm: the template does not take these extents; leave engine out", "cutlass", 1)
        try:
            self._room = library.workspace.lease(max(size, 256))
            self._otherwise = otherwise()
        except BaseException:  # whatever ends it: nothing else holds the scratch
            self.close()
            raise

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        a, b, out, c, inputs, _, alpha, beta = dynamic
        bits = a | b | out | (c or 0)
        for address in inputs or ():
            bits |= address
        if bits & BYTES - 1:
            self._otherwise(stream, *dynamic)
            return
        call = self._call
        call.a, call.b, call.c, call.out, call.alpha, call.beta = a, b, c, out, alpha, beta
        for i, address in enumerate(inputs or ()):
            call.inputs[i] = address
        code = self._run(ctypes.addressof(call), self._room.memory.address, stream.native)
        if code:
            raise LibraryError(f"cutlass.gemm: CUTLASS returns status {code}", "cutlass", code)

    def close(self) -> None:
        """Release the scratch and the other plan; all its work is done."""
        if self._room is not None:
            self._library.workspace.leave(self._room)
            self._room = None
        if self._otherwise is not None:
            self._otherwise.close()
            self._otherwise = None


def _put_steps(call: Call, op: Gemm, problem: Problem) -> None:
    out = problem.result if op.out is None else op.out.layout
    *_, m, n = problem.result.shape
    call.m, call.n, call.k, call.batch = m, n, op.a.shape[-1], problem.stacks or 1
    layouts: list[tuple[str, Layout]] = [("a", op.a.layout), ("b", op.b.layout), ("out", out)]
    layouts += [("c", op.c.layout)] if op.c is not None else []
    for name, layout in layouts:
        setattr(call, f"{name}_step", far_step(layout))
        setattr(call, f"{name}_batch", batch_step(layout))
    kinds = {node.name: node.kind for node in op.epilogue if node.kind in INPUTS}
    for i, (name, one) in enumerate(zip(op.names, op.inputs, strict=True)):
        layout = one.layout
        if kinds[name] == "matrix":
            call.rows[i], call.batches[i] = far_step(layout), batch_step(layout)
        elif len(layout.shape) == 2:
            call.batches[i] = layout.strides[0]
