"""``Explain``: what executes a product."""

from typing import Any, ClassVar

from callboard.core.backend import Status
from callboard.core.op import Outputs
from callboard.kernel.cutlass.gemm import Gemm
from callboard.kernel.cutlass.product import Product

__all__ = ["Explain"]


class Explain(Product[str], tag="cutlass.explain"):
    """The engine of a product and its launches, in words; nothing is computed.

    Args:
        a, b, out, c, inputs, reductions, alpha, beta, epilogue, out_dtype, accum: See :class:`Gemm`.
        scale_a, scale_b, tf32, engine: See :class:`Gemm`. With ``engine="cutlass"`` a template is compiled, if there is
            none yet.
    """

    returns: ClassVar[tuple[str, ...]] = ()
    answers: ClassVar[Any] = str

    def infer(self) -> Outputs:
        self.product().infer()
        return {}

    def product(self) -> Gemm:
        """The product that it is about."""
        return Gemm(**{name: getattr(self, name) for name in Gemm.__struct_fields__})


class Told(Status):
    """An answer that is known when the op is launched.

    Args:
        words: The answer.
    """

    __slots__ = ("words",)

    def __init__(self, words: str) -> None:
        self.words = words

    def check(self, outcome: bytes) -> None:
        """It does not fail."""

    def answer(self) -> str:
        return self.words
