"""The methods of ``dev.elementwise``."""

from collections.abc import Iterable, Sequence

from callboard.core.dtype import DTypeLike
from callboard.core.mode import Mode
from callboard.core.ref import GpuRef
from callboard.kernel.api import Api
from callboard.kernel.elementwise.calls import (
    Argument,
    bound,
    names_of,
    readable,
    submit_many,
    submit_map,
    submit_reduce,
)
from callboard.kernel.elementwise.reduce import as_axes

__all__ = ["Methods"]


class Methods(Api[Mode]):
    """Expressions on elements, and reductions of them; ``cb.elementwise`` makes functions of them."""

    __slots__ = ()

    covers = frozenset({"map", "map_many", "reduce"})

    def map(
        self, expression: str, /, *operands: Argument[Mode], out: GpuRef[Mode] | None = None, **named: Argument[Mode]
    ) -> GpuRef[Mode]:
        """The last statement of an expression, for each element; see :func:`callboard.elementwise`.

        Args:
            expression: Assignments, as in ``"z = alpha * x + max(y, 0)"``.
            operands, out, named: See the call of ``cb.elementwise(expression)``.
        """
        text = readable(expression, "out")
        answer: GpuRef[Mode] = submit_map(self._submit, text, bound(text, operands, named), out)
        return answer

    def map_many(
        self,
        expression: str,
        results: Sequence[str],
        /,
        *operands: Argument[Mode],
        outs: Sequence[GpuRef[Mode] | None] | None = None,
        **named: Argument[Mode],
    ) -> tuple[GpuRef[Mode], ...]:
        """Several statements of an expression in one pass; see :func:`callboard.elementwise`.

        Args:
            expression: Assignments.
            results: The names whose values are given, in this order.
            operands, outs, named: See the call of ``cb.elementwise(expression, results=…)``.
        """
        text = readable(expression, "outs")
        answer: tuple[GpuRef[Mode], ...] = submit_many(
            self._submit, text, names_of(text, results), bound(text, operands, named), outs
        )
        return answer

    def reduce(
        self,
        expression: str,
        /,
        *operands: Argument[Mode],
        axis: int | Iterable[int] | None = None,
        keepdims: bool = False,
        dtype: DTypeLike | None = None,
        out: GpuRef[Mode] | None = None,
        **named: Argument[Mode],
    ) -> GpuRef[Mode]:
        """A reduction of an expression along axes; see :func:`callboard.reduction`.

        Args:
            expression: Assignments, the last of which contains one call of a reduction: ``"sum(x * y)"``.
            axis, keepdims, dtype: See ``cb.reduction``.
            operands, out, named: See the call of ``cb.reduction(expression)``.
        """
        text = readable(expression, "out", "axis", "keepdims", "dtype")
        settings = {"axes": as_axes(axis), "keepdims": keepdims, "dtype": dtype, "out": out}
        answer: GpuRef[Mode] = submit_reduce(self._submit, text, bound(text, operands, named), settings)
        return answer
