"""One call of ``cublasLtMatmul`` for a message, epilogue and all."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.scalars import device_getters, factor_of, host_cell
from callboard.backends.cuda.blas_lt.cublaslt import WIDE, Candidate, CublasLt
from callboard.backends.cuda.blas_lt.mapping import (
    CUDA_TYPE,
    EPILOGUE,
    POINTERS,
    Mapping,
    addend_type,
    aux_dtype,
    bias_field,
    layout_of_field,
    pointer_mode,
    scale_modes,
)
from callboard.backends.cuda.blas_lt.operation import Operation
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.op import Outputs, info_of
from callboard.kernel.blas_lt.product import Product

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Choose", "Fused", "batch_step", "fused", "row_step"]

WORD = 4
"""Bytes: how a bias is aligned at least."""

Choose = Callable[[Product[Any], Mapping, Outputs, Operation, list[Candidate]], Candidate]


class Fused:
    """A plan: ``plan(stream, *dynamic)`` enqueues one matrix product.

    A launch stores addresses in the plan's own descriptor, which cuBLASLt reads during the call: nothing of it is
    shared with another plan, and a CUDA graph may capture it.

    Args:
        lt: The handle.
        op: The message, with placeholders.
        mapping: Mapping of the product.
        operation: The descriptors of that.
        wide: Candidate for operands that all start at multiples of 16 bytes.
        narrow: Candidate for other operands; None: there is none.

    Attributes:
        needs_alignment: There is no ``narrow``.
        otherwise: Another plan for operands that start elsewhere.
    """

    def __init__(
        self,
        lt: CublasLt,
        op: Product[Any],
        mapping: Mapping,
        operation: Operation,
        wide: Candidate,
        narrow: Candidate | None,
    ) -> None:
        self.needs_alignment = narrow is None
        self.otherwise: Any = None
        self._operation = operation
        self._keeps = wide, narrow  # launches are given addresses in them
        names = [field.name for field in info_of(type(op)).dynamic]
        given = _fields_in_use(op)
        puts = [(names.index(name), operation.pointer(POINTERS[name])) for name in given if name in POINTERS]
        self._run = _run(self, lt, op, mapping, operation, wide, narrow, names, puts)

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        self._run(stream, *dynamic)

    def close(self) -> None:
        """Destroy the descriptors."""
        self._operation.close()
        if self.otherwise is not None:
            self.otherwise.close()


def fused(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs, choose: Choose) -> Fused | None:
    """The plan of a message; None if cuBLASLt has no kernel for it.

    Args:
        lt: The handle.
        op: The message, with placeholders.
        mapping: Mapping of the product.
        made: Layouts of the outputs that it makes.
        choose: Picks one of several candidates.
    """
    operation = describe(lt, op, mapping, made)
    try:
        search = {"repeatable": op.deterministic, "apart": op.c is not None}
        wide = lt.candidates(operation, max(op.autotune, 1), op.workspace_size, (WIDE,) * 4, **search)
        narrow = lt.candidates(operation, 1, op.workspace_size, _narrowest(op, mapping), **search)
        wide = wide[: max(op.autotune, 1)]
        if not wide:
            operation.close()
            return None
        chosen = choose(op, mapping, made, operation, wide) if len(wide) > 1 else wide[0]
        candidates = [chosen, *narrow[:1]]
        lt.reserve(max(c.workspace for c in candidates))
        return Fused(lt, op, mapping, operation, chosen, narrow[0] if narrow else None)
    except BaseException:  # whatever ends it: nothing else holds the descriptors
        operation.close()
        raise


def describe(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs) -> Operation:
    """The operation's descriptor and layouts."""
    out = mapping.out
    operation = Operation(lt, mapping.compute, CUDA_TYPE[mapping.scale.name])
    try:
        operation.set("TRANSA", mapping.trans_b)
        operation.set("TRANSB", mapping.trans_a)
        operation.set("EPILOGUE", EPILOGUE[op.epilogue])
        operation.set("POINTER_MODE", pointer_mode(op))
        if op.fast_accum:
            operation.set("FAST_ACCUM", 1)
        _describe_operands(operation, op, mapping, made)
        for stack, dtype in ((mapping.b, op.b.dtype), (mapping.a, op.a.dtype)):
            form = stack.form
            extents = (form.rows, form.cols) if form.transposed else (form.cols, form.rows)
            operation.add_layout(CUDA_TYPE[dtype.name], *extents, form.ld, mapping.batch, stack.step)
        c = out if op.c is None else op.c.layout
        for layout, kind in ((c, addend_type(op, out.dtype)), (out, CUDA_TYPE[out.dtype.name])):
            operation.add_layout(kind, mapping.n, mapping.m, row_step(layout), mapping.batch, batch_step(layout))
    except BaseException:  # whatever ends it: nothing else holds the descriptors
        operation.close()
        raise
    return operation


def _describe_operands(operation: Operation, op: Product[Any], mapping: Mapping, made: Outputs) -> None:
    for name in _fields_in_use(op):
        if name in POINTERS:
            operation.set(POINTERS[name], 1 << 20)  # a search looks whether there is one; launches put the real one
    for name, mode in zip(("scale_b", "scale_a"), reversed(scale_modes(op, mapping)), strict=True):
        if mode:
            operation.set(f"{POINTERS[name][0]}_SCALE_MODE", mode)
    bias = bias_field(op)
    if bias is not None:
        layout = layout_of_field(op, made, bias)
        assert layout is not None
        operation.set("BIAS_DATA_TYPE", CUDA_TYPE[layout.dtype.name])
        if layout.ndim == 2:
            operation.set("BIAS_BATCH_STRIDE", layout.strides[0])
    if op.traits.aux:
        layout = layout_of_field(op, made, "aux")
        assert layout is not None
        bits = 8 if op.traits.activation == "relu" else 1
        operation.set("EPILOGUE_AUX_LD", bits * row_step(layout))
        if layout.ndim == 3:
            operation.set("EPILOGUE_AUX_BATCH_STRIDE", bits * batch_step(layout))
        kept = aux_dtype(op, made)
        if kept is not None:
            operation.set("EPILOGUE_AUX_DATA_TYPE", CUDA_TYPE[kept.name])


def _fields_in_use(op: Product[Any]) -> list[str]:
    """Names of the operands that a call brings, outputs included."""
    roles = info_of(type(op)).roles
    return [n for n in roles if getattr(op, n) is not None or n in type(op).returns]


def row_step(layout: Layout) -> int:
    """Leading dimension of a row-major matrix."""
    rows, cols = layout.shape[-2:]
    return layout.strides[-2] if rows > 1 else max(cols, 1)


def batch_step(layout: Layout) -> int:
    """Distance of the matrices of a batch."""
    return layout.strides[0] if layout.ndim == 3 and layout.shape[0] > 1 else 0


def _narrowest(op: Product[Any], mapping: Mapping) -> tuple[int, int, int, int]:
    """The smallest alignments of A, B, C and D."""
    c = mapping.out if op.c is None else op.c.layout
    return op.b.dtype.itemsize, op.a.dtype.itemsize, c.dtype.itemsize, mapping.out.dtype.itemsize


def _run(
    plan: Fused,
    lt: CublasLt,
    op: Product[Any],
    mapping: Mapping,
    operation: Operation,
    wide: Candidate,
    narrow: Candidate | None,
    names: list[str],
    puts: list[tuple[int, Callable[[int], None]]],
) -> Callable[..., None]:
    matmul, handle, desc, failure = lt.library.matmul, lt.handle, operation.desc, lt.failure
    layout_b, layout_a, layout_c, layout_out = operation.layouts
    at_alpha, at_beta = names.index("alpha"), names.index("beta")
    pointers = _pointers(lt, op, mapping)
    vectors = [i for i, name in enumerate(names) if name in ("bias", "bias_grad")]
    looked_at = [i for i, name in enumerate(names) if name in ("bias", "aux", "bias_grad")]
    wide_at, wide_bytes = wide.address, wide.workspace
    tag = info_of(type(op)).tag
    # In place C and D must be of one type; what beta = 0 multiplies is not read.
    same_type, unread = addend_type(op, mapping.out.dtype) == CUDA_TYPE[mapping.out.dtype.name], lt.slots

    def run(stream: "CudaStream", *dynamic: Any) -> None:
        a, b, out, c = dynamic[:4]
        if c is None:
            c = out if same_type else unread
        address, workspace = wide_at, wide_bytes
        bits = a | b | out | c
        for at in looked_at:
            bits |= dynamic[at] or 0
        if bits & WIDE - 1:
            if narrow is None or any((dynamic[at] or 0) % WORD for at in vectors):
                if plan.otherwise is not None:
                    plan.otherwise(stream, *dynamic)
                    return
                raise UnsupportedOp(
                    f"cuda, {tag}: an operand starts at an address that is not a multiple of {WIDE} bytes (a bias: of "
                    f"{WORD}), and cuBLASLt has no kernel for that; copy it first (dev.copy)"
                )
            address, workspace = narrow.address, narrow.workspace
        for at, put in puts:
            put(dynamic[at])
        p_alpha, p_beta = pointers(dynamic[at_alpha], dynamic[at_beta])
        try:
            matmul(
                *(handle, desc, p_alpha, b, layout_b, a, layout_a, p_beta, c, layout_c, out, layout_out),
                *(address, lt.workspace, workspace, stream.native),
            )
        except failure as e:
            raise lt.error(e, "cublasLtMatmul") from None

    return run


def _pointers(lt: CublasLt, op: Product[Any], mapping: Mapping) -> Callable[[Any, Any], tuple[int, int]]:
    """Return the function that locates alpha and beta: both in host memory, or both on the device."""
    factors = [factor_of(value, mapping.scale) for value in (op.alpha, op.beta)]
    if pointer_mode(op):
        get_alpha, get_beta = device_getters(lt, factors)
        return lambda alpha, beta: (get_alpha(alpha), get_beta(beta))
    (at_alpha, put_alpha, keep_alpha), (at_beta, put_beta, keep_beta) = (host_cell(f.dtype) for f in factors)

    def on_host(alpha: Any, beta: Any) -> tuple[int, int]:
        put_alpha(alpha)
        put_beta(beta)
        return at_alpha, at_beta

    on_host.keeps = keep_alpha, keep_beta  # type: ignore[attr-defined] # cuBLASLt is given their addresses
    return on_host
