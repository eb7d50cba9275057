"""``END``: the end of a stream, and of a state graph."""

from typing import Final

__all__ = ["END"]


class _End(str):
    """A text, so that a condition of a graph may return ``"__end__"``; a stream ends with this object only."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "callboard.END"

    def __reduce__(self) -> str:
        return "END"


END: Final = _End("__end__")
"""Put into a queue, it ends the source that is made of it; an edge of a state graph to it ends a branch of the run."""
