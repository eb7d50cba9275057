"""Plans of matrix products, of one or a batch; and of new weights."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.cutlass.choosing import Candidate, fastest
from callboard.backends.cuda.cutlass.engines import Direct, InSteps, Product, direct, product_message, settings_of
from callboard.backends.cuda.cutlass.rules import refuses
from callboard.backends.cuda.cutlass.templated import Templated, templated
from callboard.core.layout import layout_of
from callboard.core.library import plans
from callboard.kernel.cutlass import Explain, Gemm, Refit
from callboard.kernel.cutlass.explain import Told

if TYPE_CHECKING:
    from callboard.backends.cuda.cutlass.library import CudaCutlass
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["explain", "gemm", "refit"]


@plans(Gemm, refuses=refuses)
def gemm(library: "CudaCutlass", op: Gemm) -> Direct | InSteps | Templated:
    """The fastest of one call of cuBLASLt (steps, where it lacks the epilogue) and the templates that are compiled."""
    problem = op.problem()
    empty = op.a.shape[-1] == 0
    sums_of = layout_of(op.accumulated, problem.result.shape)
    message = product_message(op.a.layout, op.b.layout, sums_of, **settings_of(op))

    def in_steps(own: "CudaCutlass") -> InSteps:
        def make(sums: int) -> tuple[Any, Callable[[], None], str]:
            product = Product(own, message, sums)
            return (
                lambda stream, given: product(stream, given[0], given[1], *given[-2:]),
                product.close,
                "cublaslt: the product",
            )

        return InSteps(own, op, problem, (), make, empty=empty)

    if empty or not problem.result.size:
        return in_steps(library)
    whole = direct(op, problem) if op.engine != "cutlass" else None
    candidates = templated(library, op, problem, in_steps)
    if whole is not None:
        asked = whole
        candidates = [Candidate("cublaslt", lambda own: Direct(own, asked)), *candidates]
    elif op.engine != "cutlass":
        candidates = [*candidates, Candidate("in steps", in_steps)]
    at, words = fastest(library, op, problem, candidates)
    plan: Direct | InSteps | Templated = candidates[at].make(library)
    plan.executed_by += words
    return plan


@plans(Explain, refuses=refuses)
def explain(library: "CudaCutlass", op: Explain) -> Callable[..., Told]:
    """The plan of the product is made, and says what executes it."""
    plan = gemm(library, op.product())
    told = Told(plan.executed_by)
    plan.close()
    return lambda stream, *dynamic: told


@plans(Refit, inline=True)
def refit(library: "CudaCutlass", op: Refit) -> Callable[..., None]:
    """Copies, one after the other on the stream."""
    sizes = [one.layout.nbytes for one in op.new]
    driver = library.device.driver

    def copy(stream: "CudaStream", new: Any, into: Any) -> None:
        for size, source, target in zip(sizes, new or (), into or (), strict=True):
            if size:
                code = driver.memcpy_dtod(target, source, size, stream.native)
                if code:
                    raise driver.error(code, "cuMemcpyDtoDAsync")

    return copy
