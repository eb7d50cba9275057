"""NumPy's functions of a ref that read no values: answered from its dtype, its shape and its memory, without waiting.

All others are refused (:meth:`ArrayOperators.__array_function__
<callboard.core.ref.operators.ArrayOperators.__array_function__>`): a function that NumPy adds later may read values.
"""

from typing import Any

import numpy as np

from callboard.core.errors import AccelError

__all__ = ["METADATA", "answered"]

_ALL_ARGUMENTS = frozenset({"common_type", "einsum_path", "result_type"})
"""Functions that read only the dtypes and shapes of their arguments."""
_FIRST_ARGUMENT = frozenset(
    {
        *("can_cast", "diag_indices_from", "empty_like", "full_like", "iscomplexobj", "isrealobj", "min_scalar_type"),
        *("ndim", "ones_like", "shape", "size", "tril_indices_from", "triu_indices_from", "zeros_like"),
    }
)
"""Functions that read only the dtype and the shape of their first argument."""
_MEMORY = frozenset({"may_share_memory", "shares_memory"})
_WITHOUT_EXTENTS = frozenset(
    {"can_cast", "common_type", "iscomplexobj", "isrealobj", "min_scalar_type", "ndim", "result_type"}
)
"""Functions that read no extents: these may depend on data that is still being computed."""
METADATA = _ALL_ARGUMENTS | _FIRST_ARGUMENT | _MEMORY
"""The functions that are answered."""
_FIRST_NAMES = "a", "arr", "from_", "x"
_SOMEWHERE = 1 << 40
"""An address for the comparison of two views of one allocation."""


def answered(function: Any, kind: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of NumPy answers; ``NotImplemented`` for one that reads values.

    Functions that make an array like another one make an array of the host.

    Args:
        function: The function.
        kind: The type of refs.
        args: Its arguments.
        kwargs: Its arguments by name.

    Raises:
        ShapeError: An extent is not known yet.
    """
    name = function.__name__
    if getattr(function, "__module__", None) not in (None, "numpy") or name not in METADATA:
        return NotImplemented
    if name in _MEMORY:
        return _share(function, kind, args, kwargs)
    count = len(args) if name in _ALL_ARGUMENTS else 1
    given = [*args[:count], *(kwargs[key] for key in _FIRST_NAMES if key in kwargs)]
    if name == "min_scalar_type" and any(isinstance(x, kind) and not x.ndim for x in given):
        return NotImplemented  # of one number it depends on the value
    first = (_blank(name, x) if isinstance(x, kind) else x for x in args[:count])
    named = {key: _blank(name, x) if key in _FIRST_NAMES and isinstance(x, kind) else x for key, x in kwargs.items()}
    return function(*first, *args[count:], **named)


def _blank(name: str, x: Any) -> "np.ndarray[Any, Any]":
    """An array of the host of this dtype and shape, which takes no memory."""
    if name in _WITHOUT_EXTENTS:
        return np.empty((0,) * x.ndim, x.dtype.np)
    return np.broadcast_to(np.zeros((), x.dtype.np), x.shape)


def _share(function: Any, kind: type[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    x, y, *rest = args
    if isinstance(x, kind) and isinstance(y, kind) and x.allocation is y.allocation:
        return function(_Placed(x, _SOMEWHERE), _Placed(y, _SOMEWHERE), *rest, **kwargs)
    if function.__name__ == "may_share_memory" and any(_is_read_only(one) for one in (x, y)):
        return True
    placed = []
    for one in (x, y):
        if isinstance(one, kind):
            allocation = one.allocation
            if not allocation.foreign and getattr(allocation, "memory", None) is None:
                return False  # nothing else knows this memory
            try:
                one = _Placed(one, one.raw_device_ptr() - one.offset)
            except (AccelError, TypeError):  # it is gone, or in another process
                return False
        placed.append(one)
    return function(*placed, *rest, **kwargs)


def _is_read_only(x: Any) -> bool:
    """True for what may be ``np.asarray(ref)``: a library that asks for shared memory copies it before it writes."""
    return isinstance(x, np.ndarray) and not x.flags.writeable


class _Placed:
    """The place of an array in memory, for NumPy, which compares addresses and reads nothing.

    Args:
        x: A ref.
        base: Address of its allocation.
    """

    def __init__(self, x: Any, base: int) -> None:
        size = x.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{size}",
            "shape": x.shape,
            "strides": tuple(size * step for step in x.strides),
            "data": (base + x.offset, True),
        }
