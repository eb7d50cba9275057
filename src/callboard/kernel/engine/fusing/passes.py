"""``fused``: the steps of a graph, with several nodes in one step where one op may compute them."""

from collections.abc import Callable, Sequence
from typing import Any

from callboard.kernel.engine.fusing.convolutions import convolutions
from callboard.kernel.engine.fusing.norms import norms
from callboard.kernel.engine.fusing.patterns import attentions, products, side_by_side
from callboard.kernel.engine.fusing.twins import twins
from callboard.kernel.engine.fusing.view import View
from callboard.kernel.engine.mapped.steps import Step

__all__ = ["fused"]

PASSES: Sequence[Callable[[View], list[Step]]] = (twins, norms, products, attentions, side_by_side, convolutions)


def fused(steps: list[Step], outputs: Sequence[str], constants: dict[str, Any], matrices: frozenset[str]) -> list[Step]:
    """The steps, some of them joined; see :class:`View` for the arguments.

    Whether one op computes a joined step depends on shapes and dtypes, and is known when it is executed.
    """
    for each in PASSES:
        steps = each(View(steps, outputs, constants, matrices))
    return steps
