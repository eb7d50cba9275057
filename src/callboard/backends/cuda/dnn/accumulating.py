"""Plans of ops whose result is scaled and added to an array: the op's plan, and one kernel after it."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.dnn.kernels import made as made_of
from callboard.backends.cuda.elementwise.mapping import MapPlan
from callboard.core.layout import layout_of
from callboard.kernel.dnn.accumulation import accumulation_of, is_accumulated, place_of_result, without_addend

if TYPE_CHECKING:
    from callboard.backends.cuda.dnn.library import CudaDnn
    from callboard.backends.cuda.stream import CudaStream
    from callboard.backends.cuda.workspace import Room

__all__ = ["accumulating"]

Make = Callable[["CudaDnn", Any], Any]


def accumulating(make: Make) -> Make:
    """Serve ops with an ``addend`` and factors by the plan of the op alone.

    The plan is called with the addend first after the stream.
    """

    @functools.wraps(make)
    def made(library: "CudaDnn", op: Any) -> Any:
        if is_accumulated(op) and made_of(op, op.returns[0]).size:
            return Accumulated(library, op, make)
        return Alone(make(library, op.alone()))

    return made


class Alone:
    """The plan of an op whose result is final."""

    def __init__(self, plan: Any) -> None:
        self._plan = plan
        self.close: Callable[[], None] = plan.close

    def __call__(self, stream: "CudaStream", addend: int | None, *dynamic: Any) -> Any:
        return self._plan(stream, *dynamic)


class Accumulated:
    """A plan whose op writes to a workspace, from where a kernel adds the result to its place."""

    def __init__(self, library: "CudaDnn", op: Any, make: Make) -> None:
        out = made_of(op, op.returns[0])
        result = layout_of(out.dtype, out.shape)
        program, layouts, self._factors = accumulation_of(op, result)
        self._reads_addend, self._at = len(layouts) == 2, place_of_result(op)
        self._workspace = library.results  # both plans may work in the other one
        self._room: Room | None = self._workspace.lease(result.nbytes)
        self._result = self._room.memory.address
        self._plans: list[Any] = []
        try:
            self._plans.append(make(library, without_addend(op, result)))
            self._plans.append(MapPlan(library, program, out.shape, layouts, [out]))
        except BaseException:  # whatever ends it: nothing else holds them
            self.close()
            raise

    def __call__(self, stream: "CudaStream", addend: int | None, *dynamic: Any) -> Any:
        plan, finish = self._plans
        status = plan(stream, *dynamic[: self._at], self._result, *dynamic[self._at + 1 :])
        operands = [self._result, addend] if self._reads_addend and addend is not None else [self._result]
        finish(stream, operands, self._factors, dynamic[self._at])
        return status

    def close(self) -> None:
        """Free its share of the workspaces; its work is done."""
        while self._plans:
            self._plans.pop().close()
        if self._room is not None:
            self._workspace.leave(self._room)
            self._room = None
