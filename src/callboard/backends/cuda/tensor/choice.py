"""Choice of the engine: cuTENSOR, or cuBLAS and custom kernels. The only place that decides.

The reasons and the figures are in docs/decisions/0020-cutensor.md.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.tensor.cutensor import Cutensor, Refused, load_cutensor
from callboard.core.errors import BackendUnavailable
from callboard.kernel.tensor.modes import Label, Tensor

if TYPE_CHECKING:
    from callboard.backends.cuda.tensor.elementwise import Term
    from callboard.kernel.tensor.lowering import Lowering

__all__ = ["LARGE", "SETTINGS", "VARIABLE", "Choice", "lies_across"]

VARIABLE = "CALLBOARD_TENSOR_ENGINE"
LARGE = 16 << 20
"""Bytes from which a transposition pays: by cuTENSOR, whose call takes the host longer, or as a step of its own."""
HUGE = 128 << 20
"""Bytes from which cuTENSOR adds up columns as fast as we do, or faster."""
SETTINGS = ("auto", "cutensor", "builtin")
"""``auto``: the rules of this module; ``cutensor``: whenever it supports the op; ``builtin``: never cuTENSOR."""


class Choice:
    """The options of a cuTENSOR plan.

    Args:
        setting: One of :data:`SETTINGS`; None takes that of the environment.

    Attributes:
        detail: Description of the engine in use.

    Raises:
        BackendUnavailable: The environment names no setting, or cuTENSOR by name, which is not there.
    """

    def __init__(self, setting: str | None = None) -> None:
        self._setting = os.environ.get(VARIABLE, "auto") if setting is None else setting
        self._library: Any = None
        self._cutensor: Cutensor | None = None
        if self._setting not in SETTINGS:
            raise BackendUnavailable(f"{VARIABLE} is {self._setting!r}; it is one of {', '.join(SETTINGS)}")
        self.detail = f"cuBLAS and kernels of callboard's own, as {VARIABLE} says"
        if self._setting != "builtin":
            try:
                self._library, version = load_cutensor()
                named = f"cuTENSOR {version // 10000}.{version // 100 % 100}.{version % 100}"
                self.detail = (
                    f"{named} for what it is better at" if self._setting == "auto" else f"{named} before others"
                )
            except BackendUnavailable as e:
                if self._setting == "cutensor":
                    raise
                self.detail = f"cuBLAS and kernels of callboard's own, without cuTENSOR ({e})"

    def cutensor(self) -> Cutensor:
        """The handle. The first call makes it, which takes a second: not for a launch.

        Raises:
            Refused: It is not there, or not wanted.
            OutOfMemory, LibraryError: It cannot be made.
        """
        if self._library is None:
            raise Refused(self.detail)
        if self._cutensor is None:
            self._cutensor = Cutensor(self._library)
        return self._cutensor

    def contraction(self, ways: "Sequence[Lowering]") -> bool:
        """True to contract with cuTENSOR: an operand or the result is no stack of matrices and would be copied."""
        return self._by(ways[0].cost > 0)

    def outer(self) -> bool:
        """True to multiply with cuTENSOR if nothing is summed; by default custom kernels do."""
        return self._by(False)

    def reduction(self, term: Tensor, result: Tensor) -> bool:
        """True to reduce with cuTENSOR: the reduction is huge and neighbours are terms of different results."""
        nearest = _nearest(term)
        return self._by(term.layout.nbytes >= HUGE and nearest is not None and nearest in result.labels)

    def elementwise(self, terms: "Sequence[Term]", joins: Sequence[str], result: Tensor) -> bool:
        """True to join with cuTENSOR: an operand is transposed against a large result; three tensors must be summed."""
        across = any(lies_across(term.tensor, result) for term in terms)
        sums = len(terms) < 3 or all(join == "add" for join in joins)
        return self._by(across and sums and result.layout.nbytes >= LARGE)

    def _by(self, better: bool) -> bool:
        return self._library is not None and (better or self._setting == "cutensor")

    def close(self) -> None:
        """Destroy the handle; its plans are closed and all work is done."""
        if self._cutensor is not None:
            self._cutensor.close()
            self._cutensor = None


def lies_across(tensor: Tensor, result: Tensor) -> bool:
    """True if neighbours in the result are not neighbours in the tensor."""
    nearest = _nearest(result)
    if nearest is None:
        return False
    (mine,), theirs = tensor.steps((nearest,)), tensor.layout.strides
    return abs(mine) > 1 and any(0 < abs(step) < abs(mine) for step in theirs)


def _nearest(tensor: Tensor) -> Label | None:
    """The mode with the shortest step; None if there is one element only."""
    axes = zip(tensor.labels, tensor.layout.shape, tensor.layout.strides, strict=True)
    steps = [(abs(step), label) for label, n, step in axes if n > 1]
    return min(steps, key=lambda x: x[0])[1] if steps else None
