"""``View``: who makes and who reads the values of a graph."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from callboard.kernel.engine.mapped.steps import Step
from callboard.kernel.engine.mapped.tools import Operator

__all__ = ["View", "joined"]


class View:
    """The steps of a graph, their values, and the arrays that are known when the plan is built.

    Args:
        steps: Nodes in order.
        outputs: Names of the graph's outputs.
        constants: Known arrays by name; passes may add some.
        matrices: Names of weights with two axes, also of those that are given to each execution.
    """

    def __init__(
        self, steps: Sequence[Step], outputs: Sequence[str], constants: dict[str, Any], matrices: frozenset[str]
    ) -> None:
        self.steps = steps
        self.constants = constants
        self.matrices = matrices
        self.outputs = outputs
        self.uses = Counter(outputs)
        for step in steps:
            self.uses.update([*step.inputs, *step.captured])
        self._makers = {name: step for step in steps for name in step.outputs}
        self._readers = {name: step for step in steps for name in step.inputs}

    def maker(self, name: str, *ops: str, uses: int = 1) -> Step | None:
        """The step that makes a value which is read so often, and is no output; None for steps of other operators."""
        found = self._makers.get(name)
        return found if found is not None and found.op in ops and self.uses[name] == uses else None

    def reader(self, name: str, op: str) -> Step | None:
        """The step that reads a value, if it is the only one, reads it once, and is of this operator."""
        found = self._readers.get(name)
        return found if found is not None and found.op == op and self.uses[name] == 1 else None

    def known(self, names: Sequence[str]) -> list[Any] | None:
        """The arrays of constants; None if one of the values is not known."""
        found = [self.constants.get(name) for name in names]
        return None if any(array is None for array in found) else found

    def number(self, name: str) -> float | None:
        """The floating-point number that a constant holds; None if it is something else."""
        array = self.constants.get(name)
        if array is None or array.size != 1 or array.ndim > 1 or array.dtype.kind not in "fV":
            return None
        return float(np.asarray(array, np.float64).reshape(()))

    def with_joined(self, made: Mapping[int, Step], first: bool = False) -> list[Step]:
        """The steps with joined ones in place of their parts.

        Args:
            made: Joined steps by the identity of a part: the last one, or with ``first`` the first one.
            first: See ``made``.
        """
        gone = {id(part) for step in made.values() for part in step.parts}
        return [made.get(id(step), step) for step in self.steps if id(step) in made or id(step) not in gone]


def joined(
    op: str,
    function: Any,
    parts: Iterable[Step],
    inputs: Sequence[str],
    outputs: Sequence[str] = (),
    **attributes: Any,
) -> Step:
    """A step that computes what these do; where its function gives None, they are executed one by one.

    Args:
        op: Its name in :meth:`EnginePlan.explain <callboard.kernel.engine.plan.EnginePlan.explain>`.
        function: ``(tools, *inputs, **attributes)``.
        parts: The steps, in order.
        inputs: The values that the function takes.
        outputs: Those that it makes; by default those of the last part.
        attributes: Its keywords.
    """
    whole = tuple(parts)
    made = {name for part in whole for name in part.outputs}
    read = {name for part in whole for name in (*part.inputs, *part.captured)} - made - {""}
    return Step(
        whole[-1].title,
        Operator(function, 1),
        tuple(inputs),
        tuple(outputs) or whole[-1].outputs,
        attributes,
        frozenset(read.difference(inputs)),
        op=op,
        parts=whole,
    )
