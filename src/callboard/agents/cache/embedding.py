"""A user's embedding function: how it is called, and the check of what it returns."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from callboard.agents.checks import matrix
from callboard.core.errors import ShapeError
from callboard.core.ref.handle import GpuRef
from callboard.device.client.residents.ref import ResidentRef

__all__ = ["Embed", "EmbedExecutor", "Embedding"]

Embed = Callable[[list[str]], Any]
"""Takes texts, with their prefix, and returns or awaits one vector for each."""
EmbedExecutor = Literal["auto", "loop", "thread"]


class Embedding:
    """Calls an embedding function and returns checked rows.

    Args:
        function: The function.
        executor: ``"loop"`` calls it on the event loop, ``"thread"`` on a thread; ``"auto"`` on the loop if it is a
            coroutine function or a method of a resident actor, else on a thread.
        dtype: Of the rows that are returned.
        dim: Expected length of a vector, None for that of the first one.
    """

    def __init__(self, function: Embed, executor: EmbedExecutor, dtype: "np.dtype[Any]", dim: int | None) -> None:
        if not callable(function):
            raise TypeError(f"embed is {function!r}; pass a function that takes a list of texts")
        if executor not in ("auto", "loop", "thread"):
            raise ValueError(f"executor is {executor!r}; it must be 'auto', 'loop' or 'thread'")
        self.dim = dim
        self._function, self._dtype = function, dtype
        self._on_loop = executor == "loop" or (executor == "auto" and _awaits(function))

    async def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """One row for each text.

        Raises:
            ShapeError: The function returned another number of rows, or rows of another length.
            ValueError: It returned numbers that are not finite.
        """
        given = list(texts)
        result = self._function(given) if self._on_loop else await asyncio.to_thread(self._function, given)
        if isinstance(result, GpuRef):
            result = await result.get()
        elif isinstance(result, Awaitable):
            result = await result
            if isinstance(result, GpuRef):
                result = await result.get()
        if len(given) > 1 and np.ndim(result) != 2:
            raise ShapeError(f"embed returned shape {list(np.shape(result))} for {len(given)} texts; one row for each")
        rows = matrix("the result of embed", result, columns=self.dim, rows=len(given))
        self.dim = rows.shape[1]
        kept = rows.astype(self._dtype)
        if not np.isfinite(kept).all():
            raise ValueError(f"embed returned {np.abs(rows).max():.6g}, too large for {self._dtype}; use dtype='f32'")
        return kept


def _awaits(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    called = getattr(function, "__call__", None)  # noqa: B004 -- looked at, not called
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called):
        return True
    return inspect.ismethod(function) and isinstance(function.__self__, ResidentRef)
