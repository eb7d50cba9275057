"""Plans of CUTLASS's templates: one kernel for the product and its epilogue."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass import nvcc
from callboard.backends.cuda.cutlass.hopper import BYTES, batch_step, far_step
from callboard.backends.cuda.cutlass.templates import Call, gemm_text, why_no_template
from callboard.core.errors import LibraryError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.epilogue import INPUTS
from callboard.kernel.cutlass.fused import Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["ARCHITECTURE", "Code", "TemplatePlan", "Templated", "image_of", "templated"]

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
        UnsupportedOp, BackendUnavailable, LibraryError: See :func:`image_of`.
    """
    if op.engine == "vendor" or why_no_template(op, problem) is not None:
        return None
    image = image_of(library, op.engine, "cutlass.gemm", lambda: gemm_text(op, problem))
    return None if image is None else Templated(library, op, problem, image, otherwise)


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


def image_of(library: "CudaCutlass", engine: str, tag: str, text: Callable[[], str]) -> bytes | None:
    """The binary of a template; None if another engine is to serve the message.

    Args:
        library: The library.
        engine: Of the message; ``"cutlass"``: compile the template if need be.
        tag: Of the op.
        text: Gives the source.

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
        return None
    source = text()
    if engine == "auto" and not nvcc.is_built(source, ARCHITECTURE):
        return None
    return nvcc.built(source, ARCHITECTURE)


class Templated(TemplatePlan):
    """A plan: one launch of a compiled template.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        image: The compiled template.
        otherwise: Makes the plan for operands that start elsewhere than at multiples of 16 bytes.
    """

    executed_by = "cutlass: one launch"

    def __init__(self, library: "CudaCutlass", op: Gemm, problem: Problem, image: bytes, otherwise: Any) -> None:
        self._call = call = Call()
        _put_steps(call, op, problem)
        call.alpha, call.beta = 1.0, 0.0
        for name in ("a", "b", "c", "out"):
            setattr(call, name, 1 << 20)  # no address is read; a check of its alignment passes
        super().__init__(library, Code(image, call, "cutlass.gemm"), otherwise)

    def put(self, *dynamic: Any) -> int:
        call = self._call
        call.a, call.b, call.out, call.c, inputs, _, call.alpha, call.beta = dynamic
        bits: int = dynamic[0] | dynamic[1] | dynamic[2] | (dynamic[3] or 0)
        for i, address in enumerate(inputs or ()):
            bits |= address
            call.inputs[i] = address
        return bits


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
