"""The plan of a product whose factors are on the device.

cuSPARSELt reads ``alpha`` and ``beta`` on the host, when it is called. So it multiplies without them into memory of
the plans, in the widest dtype that it has beside these operands, and a custom kernel does the rest.
"""

from typing import TYPE_CHECKING, Any

from msgspec import structs

from callboard.backends.cuda.sparse_lt.cusparselt import CusparseLt, check_address
from callboard.backends.cuda.sparse_lt.finishing import finish
from callboard.backends.cuda.sparse_lt.products import Multiplying
from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import Layout, c_strides, layout_of
from callboard.core.op import info_of
from callboard.core.operand import Operand, Placeholder
from callboard.kernel.blas_lt.checks import stack
from callboard.kernel.sparse_lt.products import Product

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Scaling"]

WIDEST = {"f16": "f16", "bf16": "bf16", "f32": "f32", "i8": "i32", "f8_e4m3": "f32", "f8_e5m2": "f32"}
"""The result dtype of cuSPARSELt with the least rounding."""


class Scaling:
    """A plan of a product with factors on the device, called as :class:`Multiplying` is.

    Args:
        lt: The handle.
        op: The message, with placeholders.
    """

    def __init__(self, lt: CusparseLt, op: Product[Any]) -> None:
        result = op.product()[2]
        out = result if op.out is None else op.out.layout
        product = _alike(op, DTYPES[WIDEST[op.factors()[0].dtype]], out)
        # A number is applied with the product unless that is rounded to integers: f16 may overflow without it.
        self._early = not isinstance(op.alpha, Operand) and not product.dtype.is_integer
        plain: Product[Any] = structs.replace(
            op, out=Placeholder(product), c=None, bias=None, alpha=1.0, beta=0.0, activation=None, out_dtype=None
        )
        self._lt, self._tag = lt, info_of(type(op)).tag
        self._multiply = Multiplying(lt, plain)
        try:
            self._finish = finish(lt, op, product, out)
            self._product = lt.products.share(max(product.nbytes, 1))
        except BaseException:  # any exception: release the parts made so far
            self._multiply.close()
            raise

    def __call__(
        self,
        stream: "CudaStream",
        structured: int,
        dense: int,
        out: int,
        c: int | None,
        bias: int | None,
        alpha: Any,
        beta: Any,
    ) -> None:
        early, late = (alpha, 1.0) if self._early else (1.0, alpha)
        check_address(self._tag, out=out, c=out if c is None else c)
        self._multiply(stream, structured, dense, self._product.address, None, None, early, 0.0)
        self._finish(stream, self._product.address, out, c, bias, late, beta)

    def close(self) -> None:
        """Free descriptors and memory."""
        self._multiply.close()
        self._lt.products.give_back(self._product)


def _alike(op: Product[Any], dtype: DType, out: Layout) -> Layout:
    """A layout without gaps in the order of the result."""
    if not stack(op, "out", out).form.transposed:
        return layout_of(dtype, out.shape)
    *batch, rows, cols = out.shape
    *apart, step, _ = c_strides((*batch, cols, rows))
    return layout_of(dtype, out.shape, (*apart, 1, step))
