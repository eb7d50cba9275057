"""The vendor's product, and what it needs: scratch for the sums, the epilogue's kernels behind it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.finishing import Finish
from callboard.backends.cuda.launching import kernel_launcher
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.blas_lt import Matmul
from callboard.kernel.cutlass import Gemm
from callboard.kernel.cutlass.fused import Fused, Problem

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Direct", "InSteps", "Product", "direct", "launcher", "product_message", "settings_of"]

ALIGNMENT = 256
Multiply = Callable[["CudaStream", Any], None]
"""``multiply(stream, dynamic)``: enqueue what fills the sums."""

EPILOGUES = {
    (): "none",
    ("bias",): "bias",
    ("relu",): "relu",
    ("bias", "relu"): "relu_bias",
    ("bias", "gelu"): "gelu_bias",
}
EPILOGUES |= {("gelu",): "gelu"}
"""The steps of a tree that cuBLASLt has as an epilogue."""


def product_message(a: Layout, b: Layout, sums: Layout, **settings: Any) -> Matmul:
    """The plain product into ``sums``; see :func:`settings_of`."""
    return Matmul(a=Placeholder(a), b=Placeholder(b), out=Placeholder(sums), **settings)


def settings_of(op: Gemm) -> dict[str, Any]:
    """Scales and precision of the factors, as cuBLASLt's product takes them."""
    given = {"scale_a": op.scale_a, "scale_b": op.scale_b}
    scales = {name: Placeholder(one.layout) for name, one in given.items() if one is not None}
    return {**scales, "tf32": op.tf32}


def direct(op: Gemm, problem: Problem) -> Matmul | None:
    """The whole op as one call of cuBLASLt; None if cuBLASLt does not have it exactly so."""
    steps = _steps(op)
    if steps is None or op.a.dtype.name == "i8" or op.reductions:
        return None
    dtype = problem.result.dtype
    if "gelu" in steps and dtype.name not in ("f16", "bf16"):
        return None  # cuBLASLt's GELU is right to 5 digits only
    if (op.c is not None and op.c.dtype is not dtype) or dtype.name.startswith("f8"):
        return None
    bias = op.inputs[0].layout if op.inputs else None
    if bias is not None and (bias.dtype is not dtype or op.a.dtype.name.startswith("f8")):
        return None
    out = problem.result if op.out is None else op.out.layout
    try:
        return Matmul(
            a=Placeholder(op.a.layout),
            b=Placeholder(op.b.layout),
            out=Placeholder(out),
            c=None if op.c is None else Placeholder(op.c.layout),
            bias=None if bias is None else Placeholder(bias),
            epilogue=EPILOGUES[steps],  # type: ignore[arg-type]
            beta=0.0 if op.c is None else 1.0,
            **settings_of(op),
        )
    except (TypeError, ValueError):  # a dtype or layout that cuBLASLt lacks
        return None


def _steps(op: Fused[Any]) -> tuple[str, ...] | None:
    """The tree as a chain of steps, if it is one that cuBLASLt may have."""
    found: list[str] = []
    nodes = op.epilogue
    last = next((at for at, node in enumerate(nodes) if node.kind == "accumulator"), 0)
    if len(nodes) > 4:
        return None
    for at, node in enumerate(nodes):
        if node.kind in ("relu", "gelu") and node.arguments == (last,):
            found.append(node.kind)
        elif (
            node.kind == "add"
            and last in node.arguments
            and sum(nodes[i].kind == "column" for i in node.arguments) == 1
        ):
            found.append("bias")
        elif node.kind in ("accumulator", "column"):
            continue
        else:
            return None
        last = at
    return tuple(found) if tuple(found) in EPILOGUES else None


class Direct:
    """A plan: one call of cuBLASLt.

    Args:
        library: The library.
        message: The product.
    """

    executed_by = "cublaslt: one launch"

    def __init__(self, library: "CudaCutlass", message: Matmul) -> None:
        self._lt = library.lt
        self._plan = library.lt.plan(message)

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        a, b, out, c, inputs, _, alpha, beta, scale_a, scale_b = dynamic
        bias = inputs[0] if inputs else None
        self._lt.launch(stream, self._plan, a, b, out, c, scale_a, scale_b, None, None, alpha, beta, bias, None)

    def close(self) -> None:
        """Release the plan; its work is done."""
        if hasattr(self._plan, "close"):
            self._plan.close()


class Product:
    """A product into scratch by cuBLASLt: ``product(stream, a, b)``, and the scales of a message that has them.

    Args:
        library: The library.
        message: The product.
        sums: Address of the scratch.
    """

    def __init__(self, library: "CudaCutlass", message: Matmul, sums: int) -> None:
        self._lt, self._sums = library.lt, sums
        self._plan = library.lt.plan(message)

    def __call__(self, stream: "CudaStream", a: int, b: int, *scales: int | None) -> None:
        scale_a, scale_b = scales or (None, None)
        self._lt.launch(stream, self._plan, a, b, self._sums, None, scale_a, scale_b, None, None, 1.0, 0.0, None, None)

    def close(self) -> None:
        """Release the plan; its work is done."""
        if hasattr(self._plan, "close"):
            self._plan.close()


class InSteps:
    """A plan: what fills the sums, then the kernels of the epilogue.

    Args:
        library: The library.
        op: The message, with placeholders.
        problem: Its shapes.
        sizes: Bytes of further spans of scratch.
        make: ``make(sums, *spans)`` returns what fills the sums, how it is closed, and its name.
        groups: Which of the spans has the group of each row; None if there are none.
        empty: The inner extent is 0.
    """

    def __init__(
        self,
        library: "CudaCutlass",
        op: Fused[Any],
        problem: Problem,
        sizes: tuple[int, ...],
        make: Callable[..., tuple[Multiply, Callable[[], None], str]],
        groups: int | None = None,
        empty: bool = False,
    ) -> None:
        self._library = library
        self._close: Callable[[], None] = lambda: None
        nbytes = [_up(layout_of(op.accumulated, problem.result.shape).nbytes), *map(_up, sizes)]
        self._room = library.workspace.lease(max(sum(nbytes), ALIGNMENT))
        try:
            at = self._room.memory.address
            places = [at + sum(nbytes[:i]) for i in range(len(nbytes))]
            self._multiply: Multiply | None = None
            by = "no product"
            if not empty and problem.result.size:
                self._multiply, self._close, by = make(*places)
            self._finish = Finish(
                library.device, op, problem, places[0], 0 if groups is None else places[1 + groups], empty
            )
        except BaseException:  # whatever ends it: nothing else holds the scratch
            self.close()
            raise
        self.executed_by = f"{by}, then {self._finish.launches} launches of a generated epilogue"

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        if self._multiply is not None:
            self._multiply(stream, dynamic)
        self._finish(stream, dynamic)

    def close(self) -> None:
        """Release the scratch and the product; all its work is done."""
        self._close()
        self._library.workspace.leave(self._room)


def _up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def launcher(library: "CudaCutlass", name: str, blocks: int, args: Any) -> Callable[[int], None]:
    """A launch of a kernel of ``data/cutlass.cu``."""
    function = library.device.kernels.get("cutlass", name)
    return kernel_launcher(library.device.driver, function, max(1, min(blocks, 1 << 16)), (256, 1), args)
