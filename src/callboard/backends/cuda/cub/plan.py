"""``Work``: a plan of one launch; and queries of plans on their messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from callboard.backends.cuda.cub.memory import PlanMemory
from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of

if TYPE_CHECKING:
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["Work", "identity", "index_name", "number", "result_layout"]


class Work:
    """A plan: ``run(native stream, *dynamic)`` in the memory of the plan."""

    def __init__(self, memory: PlanMemory, run: Callable[..., None]) -> None:
        memory.settle()
        self._memory = memory
        self._run = run

    def __call__(self, stream: "CudaStream", *dynamic: Any) -> None:
        """Enqueue it."""
        self._run(stream.native, *dynamic)

    def close(self) -> None:
        """Free the memory; nothing uses it any more."""
        self._memory.close()


def result_layout(op: Any, name: str = "out") -> Layout:
    """The layout of a result: that of the given array, else of a new one."""
    given = getattr(op, name)
    layout: Layout = op.infer()[name] if given is None else given.layout
    return layout if given is not None else layout_of(layout.dtype, layout.shape)


def number(value: Any, work: DType) -> "np.ndarray[Any, Any]":
    """A number as an array of one; integers wrap around."""
    return np.array([value]).astype(work.np)


def identity(operation: str, work: DType) -> Any:
    """The identity element of an operation."""
    if operation in ("sum", "product"):
        return int(operation == "product")
    least = operation == "max"
    if work.is_float:
        return -np.inf if least else np.inf
    limits = np.iinfo(work.np)
    return int(limits.min if least else limits.max)


def index_name(count: int) -> str:
    """The narrowest dtype of indices below ``count``."""
    return "i32" if count < 2**31 else "i64"
