"""The array interface of a ref: operators, methods and the array API's protocol, computed by the device's namespace."""

import operator
from typing import TYPE_CHECKING, Any, Generic, Self

import numpy as np

from callboard.core.mode import Mode
from callboard.core.operand import Operand
from callboard.core.ref.html import html_of
from callboard.core.ref.metadata import answered
from callboard.core.ref.methods import ArrayMethods
from callboard.core.ref.naming import ABOUT_ARGUMENTS, OPERATORS, WRITES, renamed

if TYPE_CHECKING:
    from callboard.arrays.namespace import Namespace

__all__ = ["ArrayOperators"]

UFUNCS = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "divide": "divide",
    "true_divide": "divide",
    "floor_divide": "floor_divide",
    "remainder": "remainder",
    "power": "pow",
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
}
"""NumPy's functions behind the operators of its scalars: ``np.float64(2) * ref``."""
OPERANDS = (Operand, bool, int, float, complex, np.number, np.bool_)


class ArrayOperators(ArrayMethods, Generic[Mode]):
    """Operators as the array API standard 2025.12 has them, and further methods of NumPy arrays.

    An operand is an array of the same device or a number. Results are refs, pending like all others. In-place operators
    write to the array's memory, which its views share, and return the ref, pending on the write. An operation that
    needs a value (``float(x)``, ``bool(x)``, ``x.item()``) waits on a ``cb.sync`` device and raises ``TypeError`` on
    other devices.
    """

    __slots__ = ()

    _port: Any

    @property
    def size(self) -> int:
        """Number of elements."""
        raise NotImplementedError

    def _told(self) -> str:
        """The handle as a text, for errors: without values."""
        raise NotImplementedError

    # -- operators -----------------------------------------------------------------------------------------------------

    def _operate(self, name: str, other: Any) -> Any:
        """``name(self, other)``."""
        if not isinstance(other, OPERANDS):
            return self._not_beside(OPERATORS[name], name, other)
        try:
            return getattr(self._port.services.xp, name)(self, other)
        except ABOUT_ARGUMENTS as e:
            renamed(e, OPERATORS[name])
            raise

    def _reflect(self, name: str, other: Any) -> Any:
        """``name(other, self)``."""
        if not isinstance(other, OPERANDS):
            return self._not_beside(OPERATORS[name], name, other)
        try:
            return getattr(self._port.services.xp, name)(other, self)
        except ABOUT_ARGUMENTS as e:
            renamed(e, OPERATORS[name])
            raise

    def _alone(self, name: str) -> Any:
        try:
            return getattr(self._port.services.xp, name)(self)
        except ABOUT_ARGUMENTS as e:
            renamed(e, OPERATORS[name])
            raise

    def _write(self, name: str, other: Any) -> Any:
        if not isinstance(other, OPERANDS):
            return self._not_beside(WRITES[name], name, other)
        try:
            return self._port.services.xp._write_into(self, name, other)
        except ABOUT_ARGUMENTS as e:
            renamed(e, WRITES[name])
            raise

    def _not_beside(self, call: str, name: str, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            raise TypeError(self._beside_host(call, name, other))
        return NotImplemented

    def _beside_host(self, call: str, name: str, x: "np.ndarray[Any, Any]") -> str:
        return (
            f"{call}: {name} of {self._told()} and an array of the host ({x.dtype}{list(x.shape)}): put that on the "
            "device first, dev.put(array)"
        )

    def __add__(self, other: Self | complex, /) -> Self:
        return self._operate("add", other)  # type: ignore[no-any-return]

    def __radd__(self, other: Self | complex, /) -> Self:
        return self._reflect("add", other)  # type: ignore[no-any-return]

    def __iadd__(self, other: Self | complex, /) -> Self:
        return self._write("add", other)  # type: ignore[no-any-return]

    def __sub__(self, other: Self | complex, /) -> Self:
        return self._operate("subtract", other)  # type: ignore[no-any-return]

    def __rsub__(self, other: Self | complex, /) -> Self:
        return self._reflect("subtract", other)  # type: ignore[no-any-return]

    def __isub__(self, other: Self | complex, /) -> Self:
        return self._write("subtract", other)  # type: ignore[no-any-return]

    def __mul__(self, other: Self | complex, /) -> Self:
        return self._operate("multiply", other)  # type: ignore[no-any-return]

    def __rmul__(self, other: Self | complex, /) -> Self:
        return self._reflect("multiply", other)  # type: ignore[no-any-return]

    def __imul__(self, other: Self | complex, /) -> Self:
        return self._write("multiply", other)  # type: ignore[no-any-return]

    def __truediv__(self, other: Self | complex, /) -> Self:
        return self._operate("divide", other)  # type: ignore[no-any-return]

    def __rtruediv__(self, other: Self | complex, /) -> Self:
        return self._reflect("divide", other)  # type: ignore[no-any-return]

    def __itruediv__(self, other: Self | complex, /) -> Self:
        return self._write("divide", other)  # type: ignore[no-any-return]

    def __floordiv__(self, other: Self | complex, /) -> Self:
        return self._operate("floor_divide", other)  # type: ignore[no-any-return]

    def __rfloordiv__(self, other: Self | complex, /) -> Self:
        return self._reflect("floor_divide", other)  # type: ignore[no-any-return]

    def __ifloordiv__(self, other: Self | complex, /) -> Self:
        return self._write("floor_divide", other)  # type: ignore[no-any-return]

    def __mod__(self, other: Self | complex, /) -> Self:
        return self._operate("remainder", other)  # type: ignore[no-any-return]

    def __rmod__(self, other: Self | complex, /) -> Self:
        return self._reflect("remainder", other)  # type: ignore[no-any-return]

    def __imod__(self, other: Self | complex, /) -> Self:
        return self._write("remainder", other)  # type: ignore[no-any-return]

    def __pow__(self, other: Self | complex, /) -> Self:
        return self._operate("pow", other)  # type: ignore[no-any-return]

    def __rpow__(self, other: Self | complex, /) -> Self:
        return self._reflect("pow", other)  # type: ignore[no-any-return]

    def __ipow__(self, other: Self | complex, /) -> Self:
        return self._write("pow", other)  # type: ignore[no-any-return]

    def __and__(self, other: Self | complex, /) -> Self:
        return self._operate("bitwise_and", other)  # type: ignore[no-any-return]

    def __rand__(self, other: Self | complex, /) -> Self:
        return self._reflect("bitwise_and", other)  # type: ignore[no-any-return]

    def __iand__(self, other: Self | complex, /) -> Self:
        return self._write("bitwise_and", other)  # type: ignore[no-any-return]

    def __or__(self, other: Self | complex, /) -> Self:
        return self._operate("bitwise_or", other)  # type: ignore[no-any-return]

    def __ror__(self, other: Self | complex, /) -> Self:
        return self._reflect("bitwise_or", other)  # type: ignore[no-any-return]

    def __ior__(self, other: Self | complex, /) -> Self:
        return self._write("bitwise_or", other)  # type: ignore[no-any-return]

    def __xor__(self, other: Self | complex, /) -> Self:
        return self._operate("bitwise_xor", other)  # type: ignore[no-any-return]

    def __rxor__(self, other: Self | complex, /) -> Self:
        return self._reflect("bitwise_xor", other)  # type: ignore[no-any-return]

    def __ixor__(self, other: Self | complex, /) -> Self:
        return self._write("bitwise_xor", other)  # type: ignore[no-any-return]

    def __lshift__(self, other: Self | complex, /) -> Self:
        return self._operate("bitwise_left_shift", other)  # type: ignore[no-any-return]

    def __rlshift__(self, other: Self | complex, /) -> Self:
        return self._reflect("bitwise_left_shift", other)  # type: ignore[no-any-return]

    def __ilshift__(self, other: Self | complex, /) -> Self:
        return self._write("bitwise_left_shift", other)  # type: ignore[no-any-return]

    def __rshift__(self, other: Self | complex, /) -> Self:
        return self._operate("bitwise_right_shift", other)  # type: ignore[no-any-return]

    def __rrshift__(self, other: Self | complex, /) -> Self:
        return self._reflect("bitwise_right_shift", other)  # type: ignore[no-any-return]

    def __irshift__(self, other: Self | complex, /) -> Self:
        return self._write("bitwise_right_shift", other)  # type: ignore[no-any-return]

    def __lt__(self, other: Self | complex, /) -> Self:
        return self._operate("less", other)  # type: ignore[no-any-return]

    def __le__(self, other: Self | complex, /) -> Self:
        return self._operate("less_equal", other)  # type: ignore[no-any-return]

    def __gt__(self, other: Self | complex, /) -> Self:
        return self._operate("greater", other)  # type: ignore[no-any-return]

    def __ge__(self, other: Self | complex, /) -> Self:
        return self._operate("greater_equal", other)  # type: ignore[no-any-return]

    def __neg__(self) -> Self:
        return self._alone("negative")  # type: ignore[no-any-return]

    def __pos__(self) -> Self:
        return self._alone("positive")  # type: ignore[no-any-return]

    def __abs__(self) -> Self:
        return self._alone("abs")  # type: ignore[no-any-return]

    def __invert__(self) -> Self:
        return self._alone("bitwise_invert")  # type: ignore[no-any-return]

    def __eq__(self, other: object, /) -> Self:  # type: ignore[override]
        return self._operate("equal", other)  # type: ignore[no-any-return]

    def __ne__(self, other: object, /) -> Self:  # type: ignore[override]
        return self._operate("not_equal", other)  # type: ignore[no-any-return]

    __hash__ = object.__hash__

    def __matmul__(self, other: Self, /) -> Self:
        return self._operate("matmul", other)  # type: ignore[no-any-return]

    def __rmatmul__(self, other: Self, /) -> Self:
        return self._reflect("matmul", other)  # type: ignore[no-any-return]

    def __imatmul__(self, other: Self, /) -> Self:
        try:
            self[...] = self._operate("matmul", other)
        except ABOUT_ARGUMENTS as e:
            renamed(e, WRITES["matmul"])
            raise
        return self

    def __contains__(self, value: Any) -> bool:
        """True if an element equals ``value``; waits, like ``bool``."""
        if not self._port.services.blocking:
            raise TypeError(self._misuse("contains()"))
        return bool((self == value).any())

    def __setitem__(self, index: Any, value: Any) -> None:
        """``x[index] = value``, in place; converted to the dtype of ``x``."""
        try:
            self._port.services.xp._assign(self, index, value)
        except ABOUT_ARGUMENTS as e:
            renamed(e, "x[...] = value")
            raise

    # -- values, which a cb.sync device waits for ----------------------------------------------------------------------

    def item(self) -> Any:
        """The value of an array of one element, as a Python number; of a :mod:`callboard.sync` device.

        Raises:
            TypeError: It would have to be awaited: ``(await ref.get()).item()``.
            ValueError: The array does not have exactly one element.
        """
        return self._single("item()")

    def _single(self, what: str) -> Any:
        if not self._port.services.blocking:
            raise TypeError(self._misuse(what))
        if self.size != 1:
            cure = "ambiguous: use xp.any(x), xp.all(x) or x.size" if what == "bool()" else "no number: take an element"
            raise ValueError(f"{what} of {self._told()}: the value of {self.size} elements is {cure}")
        return self._port.services.get(self, None).item()

    def __format__(self, spec: str) -> str:
        """``f"{x:.3f}"`` of one element waits, like ``float``; without a format it is the text of the handle."""
        return format(self._single("format()"), spec) if spec else str(self)

    def __bool__(self) -> bool:
        return bool(self._single("bool()"))

    def __float__(self) -> float:
        return float(self._single("float()"))

    def __int__(self) -> int:
        return int(self._single("int()"))

    def __complex__(self) -> complex:
        return complex(self._single("complex()"))

    def __round__(self, ndigits: int | None = None) -> Any:
        """``round(x, n)`` is ``np.round(x, n)``; ``round(x)`` of one element is an integer, and waits, like ``int``."""
        return round(self._single("round()")) if ndigits is None else self._port.services.np.round(self, ndigits)

    def __index__(self) -> int:
        number = self._single("index()")
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"index() of {self._told()}: its dtype is not an integer")
        return number

    def _repr_html_(self) -> str:
        """For notebooks: see :func:`callboard.core.ref.html.html_of`."""
        return html_of(self)

    # -- protocols -----------------------------------------------------------------------------------------------------

    def __array_namespace__(self, /, *, api_version: str | None = None) -> "Namespace[Mode]":
        """The namespace ``dev.xp`` of its device, in the version 2025.12.

        Raises:
            ValueError: Another version than 2021.12 to 2025.12.
        """
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12"):
            raise ValueError(f"api_version is {api_version!r}; there is 2025.12, which has all of the earlier ones")
        xp: Namespace[Mode] = self._port.services.xp
        return xp

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = UFUNCS.get(ufunc.__name__)
        if name and method == "__call__" and not options:
            host = [x for x in inputs if not isinstance(x, Operand)]
            if all(isinstance(x, np.generic) or np.ndim(x) == 0 for x in host):
                function = getattr(self._port.services.xp, name)
                return function(*(x if isinstance(x, Operand) else np.asarray(x)[()] for x in inputs))
            raise TypeError(self._beside_host(f"np.{ufunc.__name__}", name, np.asarray(host[0])))
        raise TypeError(self._of_numpy(ufunc))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's functions that read only shapes, dtypes or whose memory it is answer, as of any array.

        Raises:
            TypeError: It reads values: names the function of ``xp``.
        """
        answer = answered(function, ArrayOperators, args, kwargs)
        if answer is NotImplemented:
            raise TypeError(self._of_numpy(function))
        return answer

    def _of_numpy(self, function: Any) -> str:
        module = getattr(function, "__module__", None) or "numpy"  # functions of NumPy's C code have none
        part = next((each for each in ("linalg", "fft") if module.startswith(f"numpy.{each}")), "")
        path = f"{part}.{function.__name__}" if part else str(function.__name__)
        there = "compute there"
        for space in ("xp", "np"):
            try:
                operator.attrgetter(path)(getattr(self._port.services, space))
                there = f"compute there, `cb.{space}.{path}`"
                break
            except AttributeError as e:
                there = f"compute there ({e})"
        own = f"np{module.removeprefix('numpy')}.{function.__name__}"
        return (
            f"{own} of {self._told()}, whose values are on the device: {there}, or take them: `await ref.get()`, of a "
            "cb.sync device `ref.get()`"
        )

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """Return the array itself; ``device`` has to be its own device.

        Raises:
            DeviceMismatch: ``device`` is another one: ``other.put(ref)`` copies to it.
        """
        return self._port.services.xp._to_device(self, device)  # type: ignore[no-any-return]
