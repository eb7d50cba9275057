"""Products that cuBLASLt has no fused kernel for, in several steps.

The plain product goes into scratch in the precision of its sums, and a custom kernel finishes it: f64 (whose products
take no epilogue), extents that the fused kernels do not take, an inner extent of 0. Where only the gradient of a bias
is missing, cuBLASLt writes the result itself. i8 of any extents is multiplied by the kernel that BLAS has for it.
"""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from callboard.backends.cuda.blas.products import Steps, kernel_run
from callboard.backends.cuda.blas.scalars import device_getters, factor_of
from callboard.backends.cuda.blas_lt.cublaslt import CublasLt
from callboard.backends.cuda.blas_lt.fused import Choose, Fused, batch_step, fused, row_step
from callboard.backends.cuda.blas_lt.mapping import Mapping, bias_field, layout_of_field, writes_aux
from callboard.backends.cuda.launching import kernel_launcher
from callboard.backends.cuda.plans import nothing
from callboard.core.dtype import DTYPES
from callboard.core.layout import Layout, layout_of
from callboard.core.op import Outputs, info_of
from callboard.core.operand import Placeholder
from callboard.kernel.blas_lt import Matmul
from callboard.kernel.blas_lt.product import Product

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Unfused", "unfused"]

BLOCK = (32, 8)
MAX_BLOCKS = 1 << 14
ACTIVATION = {None: 0, "relu": 1, "gelu": 2}
PLAIN = ("f16", "bf16", "f32", "f64")
"""Factors whose products these kernels finish."""

_int64 = ctypes.c_int64


class EpilogueArgs(ctypes.Structure):
    """``EpilogueArgs`` of ``data/blas_lt.cu``."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("sum", "c", "bias", "aux", "alpha", "beta", "out", "kept")),
        *((name, _int64) for name in ("m", "n", "batch", "c_row", "c_batch", "bias_batch", "aux_row", "aux_batch")),
        *((name, _int64) for name in ("out_row", "out_batch")),
        *((name, ctypes.c_int) for name in ("activation", "backward", "back", "empty")),
    )


class SumArgs(ctypes.Structure):
    """``SumArgs`` of ``data/blas_lt.cu``."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        *((name, _int64) for name in ("count", "terms", "batch", "x_item", "x_term", "x_batch", "out_batch")),
    )


Step = Callable[..., None]
"""``step(stream, *dynamic)``, with the operands and numbers of the message."""


class Unfused:
    """A plan: ``plan(stream, *dynamic)`` enqueues its steps, one after the other.

    Args:
        close: Releases the resources of the steps.
        steps: All of them.
    """

    def __init__(self, close: Callable[[], None], *steps: Step) -> None:
        self.close = close
        self._steps = steps

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        for step in self._steps:
            step(stream, *dynamic)


def unfused(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs, choose: Choose) -> Unfused | None:
    """The plan of a message; None if there is no way."""
    if op.a.dtype.name == "i8":
        return Unfused(_hold_nothing, _integer_product(lt, op, mapping)) if mapping.out.dtype.name == "i32" else None
    if mapping.out.size == 0 and op.traits.grad is None:
        return Unfused(_hold_nothing, _empty(lt, op))
    if op.traits.grad in ("a", "b") and mapping.k and mapping.out.size:
        beside = fused(lt, _without_grad(op), mapping, made, choose)
        if beside is not None:
            return Unfused(beside.close, _leading(beside), _sums(lt, op, mapping, made, 0))
    return _in_scratch(lt, op, mapping, made, choose) if op.a.dtype.name in PLAIN else None


def _in_scratch(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs, choose: Choose) -> Unfused | None:
    wide = DTYPES["f64" if op.a.dtype.name == "f64" else "f32"]
    sums = layout_of(wide, mapping.out.shape)
    scratch = lt.shared.share(sums.nbytes)
    product: Fused | None = None

    def close() -> None:
        if product is not None:
            product.close()
        lt.shared.give_back(scratch)

    try:
        steps: list[Step] = []
        if mapping.k and mapping.out.size:
            plain = structs.replace(
                _without_grad(op), out=Placeholder(sums), c=None, alpha=1.0, beta=0.0, out_dtype=None
            )
            product = fused(lt, plain, mapping._replace(out=sums), {}, choose)
            if product is None:
                close()
                return None
            steps.append(_multiply(product, scratch.address))
        if mapping.out.size:
            steps.append(_finish(lt, op, mapping, made, scratch.address))
        if op.traits.grad is not None:
            steps.append(_sums(lt, op, mapping, made, scratch.address))
    except BaseException:  # whatever ends it: nothing else holds the product and the scratch
        close()
        raise
    return Unfused(close, *steps)


def _multiply(product: Fused, scratch: int) -> Step:
    numbers = (None, None, None, None, 1.0, 0.0, None, None)  # scales, alpha, beta, bias and aux

    def multiply(stream: "CudaStream", a: int, b: int, *rest: Any) -> None:
        product(stream, a, b, scratch, None, *numbers)

    return multiply


def _hold_nothing() -> None:
    """Release nothing: there is no scratch and no descriptor."""


def _without_grad(op: Product[Any]) -> Matmul:
    """The product of a message alone."""
    shared = {name: getattr(op, name) for name in Product.__struct_fields__}
    return Matmul(**{**shared, "epilogue": "none"})


def _leading(product: Fused) -> Step:
    """The product of a message that has two operands more, in the places of bias and aux."""
    return lambda stream, *dynamic: product(stream, *dynamic[:-2], None, None)


def _empty(lt: CublasLt, op: Product[Any]) -> Step:
    """A result without elements; the largest of none is 0."""
    at = [field.name for field in info_of(type(op)).dynamic].index("amax")

    def run(stream: "CudaStream", *dynamic: Any) -> None:
        if dynamic[at] is not None:
            lt.driver.check(lt.driver.memset_32(dynamic[at], 0, 1, stream.native), "cuMemsetD32Async")

    return run


def _integer_product(lt: CublasLt, op: Product[Any], mapping: Mapping) -> Step:
    """i8 to i32, whatever the extents and steps."""
    run = kernel_run(
        lt,
        op.a.dtype,
        (mapping.m, mapping.n, mapping.k),
        _steps_of(op.a.layout, op.transpose_a),
        _steps_of(op.b.layout, op.transpose_b),
        None if op.c is None else _steps_of(op.c.layout, False),
        _steps_of(mapping.out, False),
        (factor_of(op.alpha, mapping.scale), factor_of(op.beta, mapping.scale)),
        batch=mapping.batch,
    )
    at_alpha = [field.name for field in info_of(type(op)).dynamic].index("alpha")

    def step(stream: "CudaStream", a: int, b: int, out: int, c: int | None, *rest: Any) -> None:
        run(a, b, out, c, *rest[at_alpha - 4 : at_alpha - 2])

    return step if mapping.out.size else nothing


def _steps_of(layout: Layout, transpose: bool) -> Steps:
    row, col = layout.strides[-2:]
    if transpose:
        row, col = col, row
    return Steps(row, col, batch_step(layout))


def _finish(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs, scratch: int) -> Step:
    """Return the step for the epilogue of the product in scratch memory."""
    args = EpilogueArgs(m=mapping.m, n=mapping.n, batch=mapping.batch, sum=scratch)
    _steps(args, "out", mapping.out)
    if op.c is not None:
        _steps(args, "c", op.c.layout)
    traits = op.traits
    if traits.aux:
        aux = layout_of_field(op, made, "aux")
        assert aux is not None
        _steps(args, "aux", aux)
    if bias_field(op) == "bias":
        bias = layout_of_field(op, made, "bias")
        assert bias is not None
        args.bias_batch = bias.strides[0] if bias.ndim == 2 else 0
    args.activation, args.backward = ACTIVATION[traits.activation], int(traits.backward)
    args.back, args.empty = int(traits.grad == "out"), int(mapping.k == 0)
    tiles = -(-mapping.n // BLOCK[0]) * mapping.m * mapping.batch
    function = lt.device.kernels.get("blas_lt", f"epilogue_{mapping.out.dtype.name}")
    launch = kernel_launcher(lt.driver, function, min(-(-tiles // BLOCK[1]), MAX_BLOCKS), BLOCK, args)
    get_alpha, get_beta = device_getters(lt, [factor_of(v, mapping.scale) for v in (op.alpha, op.beta)])
    names = [field.name for field in info_of(type(op)).dynamic]
    at = {name: names.index(name) for name in ("out", "c", "alpha", "beta", "bias", "aux") if name in names}
    kept = writes_aux(op)

    def run(stream: "CudaStream", *dynamic: Any) -> None:
        args.out, args.c = dynamic[at["out"]], dynamic[at["c"]]
        args.bias = dynamic[at["bias"]] if "bias" in at else None
        aux = dynamic[at["aux"]]
        args.aux, args.kept = (None, aux) if kept else (aux, None)
        args.alpha, args.beta = get_alpha(dynamic[at["alpha"]]), get_beta(dynamic[at["beta"]])
        launch(stream.native)

    return run


def _steps(args: EpilogueArgs, name: str, layout: Layout) -> None:
    setattr(args, f"{name}_row", row_step(layout))
    setattr(args, f"{name}_batch", batch_step(layout))


def _sums(lt: CublasLt, op: Product[Any], mapping: Mapping, made: Outputs, scratch: int) -> Step:
    """Return the step for the gradient of a bias: of the result in scratch memory, or of a factor."""
    grad = layout_of_field(op, made, "bias_grad")
    assert grad is not None
    args = SumArgs(count=grad.shape[-1], batch=mapping.batch, out_batch=grad.strides[0] if grad.ndim == 2 else 0)
    source, of = mapping.out.dtype, -1
    if op.traits.grad == "out":
        source = DTYPES["f64" if source.name == "f64" else "f32"]
        args.terms, args.x_item, args.x_term, args.x_batch = mapping.m, 1, mapping.n, mapping.m * mapping.n
    else:
        of, operand, transpose, stack = (
            (0, op.a, op.transpose_a, mapping.a) if op.traits.grad == "a" else (1, op.b, op.transpose_b, mapping.b)
        )
        source = operand.dtype
        row, col = operand.strides[-2:]
        if transpose:
            row, col = col, row
        args.terms, args.x_batch = mapping.k, stack.step
        args.x_item, args.x_term = (row, col) if op.traits.grad == "a" else (col, row)
    if grad.size == 0:
        return nothing
    blocks = min(-(-grad.shape[-1] // BLOCK[0]) * mapping.batch, MAX_BLOCKS)
    function = lt.device.kernels.get("blas_lt", f"sums_{source.name}_{grad.dtype.name}")
    launch = kernel_launcher(lt.driver, function, blocks, BLOCK, args)
    at_grad = [field.name for field in info_of(type(op)).dynamic].index("bias_grad")

    def run(stream: "CudaStream", *dynamic: Any) -> None:
        args.x = scratch if of < 0 else dynamic[of]
        args.out = dynamic[at_grad]
        launch(stream.native)

    return run
