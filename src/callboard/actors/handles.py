"""``Handle``: the base of objects that stand for something that lives in this process."""

from typing import Any, ClassVar, NoReturn, Self

__all__ = ["Handle"]


class Handle:
    """Base of handles: systems, devices and what belongs to them, addresses of actors, servers.

    A copy of a handle is the handle itself, also a deep copy of what holds it: nothing behind it is copied. It cannot
    be pickled.
    """

    __slots__ = ()

    instead_of_pickling: ClassVar[str] = "make it in the process that uses it"
    """Advice, for the error."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is a handle inside one process and cannot be pickled; {self.instead_of_pickling}"
        )
