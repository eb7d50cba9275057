"""The methods and attributes of NumPy's arrays that a ref has: each is the function of ``dev.xp`` or ``dev.np``."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Self

from callboard.core.dtype import DTypeLike
from callboard.core.ref.naming import ABOUT_ARGUMENTS, renamed

__all__ = ["ArrayMethods", "Flat"]

Axis = int | tuple[int, ...] | None


class ArrayMethods:
    """Methods of NumPy's arrays, with NumPy's parameters. Results are refs; only ``sort``, ``fill``, ``put`` write."""

    __slots__ = ()

    _port: Any
    dtype: Any
    shape: Any

    def _misuse(self, what: str) -> str:
        raise NotImplementedError

    def _np(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return getattr(self._port.services.np, name)(self, *args, **kwargs)
        except ABOUT_ARGUMENTS as e:
            renamed(e, f"x.{name}")
            raise

    def _xp(self, name: str, axis: Any, keepdims: bool, **kwargs: Any) -> Any:
        """The function of ``xp``, or of ``np`` if that has arguments which ``xp`` has not."""
        given = {key: value for key, value in kwargs.items() if value is not None}
        if given:
            return self._np(name, axis=axis, keepdims=keepdims, **given)
        return getattr(self._port.services.xp, name)(self, axis=axis, keepdims=keepdims)

    # -- reductions ----------------------------------------------------------------------------------------------------

    def sum(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Self:
        """``np.sum(x, axis, dtype, out, keepdims)``."""
        return self._xp("sum", axis, keepdims, dtype=dtype, out=out, initial=initial, where=where)  # type: ignore[no-any-return]

    def prod(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Self:
        """``np.prod(x, axis, dtype, out, keepdims)``."""
        return self._xp("prod", axis, keepdims, dtype=dtype, out=out, initial=initial, where=where)  # type: ignore[no-any-return]

    def mean(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        keepdims: bool = False,
        *,
        where: Any = None,
    ) -> Self:
        """``np.mean(x, axis, dtype, out, keepdims)``."""
        return self._xp("mean", axis, keepdims, dtype=dtype, out=out, where=where)  # type: ignore[no-any-return]

    def min(
        self, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Self:
        """``np.min(x, axis, out, keepdims)``."""
        return self._xp("min", axis, keepdims, out=out, initial=initial, where=where)  # type: ignore[no-any-return]

    def max(
        self, axis: Axis = None, out: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None
    ) -> Self:
        """``np.max(x, axis, out, keepdims)``."""
        return self._xp("max", axis, keepdims, out=out, initial=initial, where=where)  # type: ignore[no-any-return]

    def any(self, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Self:
        """``np.any(x, axis, out, keepdims)``."""
        return self._xp("any", axis, keepdims, out=out, where=where)  # type: ignore[no-any-return]

    def all(self, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None) -> Self:
        """``np.all(x, axis, out, keepdims)``."""
        return self._xp("all", axis, keepdims, out=out, where=where)  # type: ignore[no-any-return]

    def std(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = None,
        mean: Any = None,
        correction: float | None = None,
    ) -> Self:
        """``np.std(x, axis, dtype, out, ddof, keepdims)``; ``correction`` is the standard's name of ``ddof``."""
        given = {"dtype": dtype, "out": out, "where": where, "mean": mean, "correction": correction}
        return self._xp("std", axis, keepdims, ddof=ddof or None, **given)  # type: ignore[no-any-return]

    def var(
        self,
        axis: Axis = None,
        dtype: DTypeLike | None = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        where: Any = None,
        mean: Any = None,
        correction: float | None = None,
    ) -> Self:
        """``np.var(x, axis, dtype, out, ddof, keepdims)``; ``correction`` is the standard's name of ``ddof``."""
        given = {"dtype": dtype, "out": out, "where": where, "mean": mean, "correction": correction}
        return self._xp("var", axis, keepdims, ddof=ddof or None, **given)  # type: ignore[no-any-return]

    def argmin(self, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Self:
        """``np.argmin(x, axis, out)``."""
        return self._xp("argmin", axis, keepdims, out=out)  # type: ignore[no-any-return]

    def argmax(self, axis: int | None = None, out: Any = None, *, keepdims: bool = False) -> Self:
        """``np.argmax(x, axis, out)``."""
        return self._xp("argmax", axis, keepdims, out=out)  # type: ignore[no-any-return]

    def ptp(self, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Self:
        """``np.ptp(x, axis, out, keepdims)``."""
        return self._np("ptp", axis, out, keepdims)  # type: ignore[no-any-return]

    def cumsum(self, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Self:
        """``np.cumsum(x, axis, dtype, out)``."""
        return self._np("cumsum", axis, dtype, out)  # type: ignore[no-any-return]

    def cumprod(self, axis: int | None = None, dtype: DTypeLike | None = None, out: Any = None) -> Self:
        """``np.cumprod(x, axis, dtype, out)``."""
        return self._np("cumprod", axis, dtype, out)  # type: ignore[no-any-return]

    # -- elements and products -----------------------------------------------------------------------------------------

    def astype(self, dtype: DTypeLike, *, copy: bool = True) -> Self:
        """``xp.astype(x, dtype)``."""
        return self._port.services.xp.astype(self, dtype, copy=copy)  # type: ignore[no-any-return]

    @property
    def real(self) -> Self:
        """The real parts."""
        return self._np("real")  # type: ignore[no-any-return]

    @property
    def imag(self) -> Self:
        """The imaginary parts: 0 for real numbers."""
        return self._np("imag")  # type: ignore[no-any-return]

    def conj(self, out: Any = None) -> Self:
        """The complex conjugates; of real numbers the array itself, unless ``out`` is given."""
        return self if out is None and not self.dtype.is_complex else self._np("conj", out)

    def conjugate(self, out: Any = None) -> Self:
        """See :meth:`conj`."""
        return self.conj(out)

    def clip(self, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Self:
        """``np.clip(x, min, max, out)``."""
        return self._np("clip", min, max, out, **options)  # type: ignore[no-any-return]

    def round(self, decimals: int = 0, out: Any = None) -> Self:
        """``np.round(x, decimals, out)``."""
        return self._np("round", decimals, out)  # type: ignore[no-any-return]

    def dot(self, b: Any, out: Any = None) -> Self:
        """``np.dot(x, b, out)``."""
        return self._np("dot", b, out=out)  # type: ignore[no-any-return]

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: DTypeLike | None = None, out: Any = None
    ) -> Self:
        """``np.trace(x, offset, axis1, axis2, dtype, out)``."""
        return self._np("trace", offset, axis1, axis2, dtype, out)  # type: ignore[no-any-return]

    # -- shapes --------------------------------------------------------------------------------------------------------

    @property
    def mT(self) -> Self:  # noqa: N802 - the standard's name
        """The view with its last two axes exchanged."""
        return self._port.services.xp.matrix_transpose(self)  # type: ignore[no-any-return]

    def transpose(self, *axes: Any) -> Self:
        """The view with its axes in another order, as ints or as one tuple; reversed without axes."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return self._np("transpose", order)  # type: ignore[no-any-return]

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """The view with two axes exchanged."""
        return self._np("swapaxes", axis1, axis2)  # type: ignore[no-any-return]

    def squeeze(self, axis: Axis = None) -> Self:
        """The view without axes of extent 1."""
        return self._np("squeeze", axis)  # type: ignore[no-any-return]

    def ravel(self, order: Literal["C", "F", "A", "K"] = "C") -> Self:
        """The elements in a line: a view where the strides allow one, else a copy."""
        return self._np("ravel", order)  # type: ignore[no-any-return]

    def flatten(self, order: Literal["C", "F", "A", "K"] = "C") -> Self:
        """The elements in a line: a copy."""
        return self._np("copy").ravel(order)  # type: ignore[no-any-return]

    @property
    def flat(self) -> "Flat":
        """The elements in a line, to be read."""
        return Flat(self)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """The view of the diagonals."""
        return self._np("diagonal", offset, axis1, axis2)  # type: ignore[no-any-return]

    def view(self, dtype: DTypeLike | None = None) -> Self:
        """The same bytes as another dtype: ``x.reinterpret(dtype)``; without one a view of the whole array."""
        whole: Any = self
        return whole[...] if dtype is None else whole.reinterpret(dtype)  # type: ignore[no-any-return]

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize  # type: ignore[no-any-return]

    # -- order, and elements by their places ---------------------------------------------------------------------------

    def copy(self) -> Self:
        """A copy on the device."""
        return self._np("copy")  # type: ignore[no-any-return]

    def repeat(self, repeats: Any, axis: int | None = None) -> Self:
        """``np.repeat(x, repeats, axis)``."""
        return self._np("repeat", repeats, axis)  # type: ignore[no-any-return]

    def take(self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Self:
        """``np.take(x, indices, axis, out, mode)``."""
        return self._np("take", indices, axis, out, mode)  # type: ignore[no-any-return]

    def compress(self, condition: Any, axis: int | None = None, out: Any = None) -> Self:
        """``np.compress(condition, x, axis, out)``."""
        return self._port.services.np.compress(condition, self, axis, out)  # type: ignore[no-any-return]

    def choose(self, *choices: Any, out: Any = None, mode: str = "raise") -> Self:
        """``np.choose(x, choices, out, mode)``; the choices may be given one by one."""
        given = choices[0] if len(choices) == 1 else choices
        return self._np("choose", given, out, mode)  # type: ignore[no-any-return]

    def nonzero(self) -> tuple[Self, ...]:
        """The indices of the elements that are not 0, for each axis. Their number depends on the data: await them."""
        return self._np("nonzero")  # type: ignore[no-any-return]

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Self:
        """``np.searchsorted(x, v, side, sorter)``."""
        return self._np("searchsorted", v, side, sorter)  # type: ignore[no-any-return]

    def argsort(self, axis: int | None = -1, *, stable: bool | None = None) -> Self:
        """``np.argsort(x, axis)``; always stable."""
        return self._np("argsort", axis)  # type: ignore[no-any-return]

    def argpartition(self, kth: Any, axis: int | None = -1) -> Self:
        """``np.argpartition(x, kth, axis)``, which sorts."""
        return self._np("argpartition", kth, axis)  # type: ignore[no-any-return]

    def sort(self, axis: int = -1, *, stable: bool | None = None) -> None:
        """Sort in place, as NumPy does; ``np.sort(x)`` gives another array."""
        whole: Any = self
        whole[...] = self._np("sort", axis)

    def partition(self, kth: Any, axis: int = -1) -> None:
        """Partition in place, by sorting."""
        whole: Any = self
        whole[...] = self._np("partition", kth, axis)

    def put(self, indices: Any, values: Any, mode: str = "raise") -> None:
        """Write elements at places of the line of all."""
        self._np("put", indices, values, mode)

    def fill(self, value: Any) -> None:
        """Write one value everywhere."""
        whole: Any = self
        whole[...] = value

    # -- values, which a cb.sync device waits for ----------------------------------------------------------------------

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers; of a :mod:`callboard.sync` device.

        Raises:
            TypeError: They would have to be awaited: ``(await ref.get()).tolist()``.
        """
        return self._values("tolist()").tolist()

    def tobytes(self) -> bytes:
        """The bytes row by row; likewise."""
        return self._values("tobytes()").tobytes()  # type: ignore[no-any-return]

    def _values(self, what: str) -> Any:
        if not self._port.services.blocking:
            raise TypeError(self._misuse(what))
        return self._port.services.get(self, None)


class Flat(Sequence[Any]):
    """``x.flat``: the elements of an array in a line, to be read."""

    __slots__ = ("_line",)

    def __init__(self, x: Any) -> None:
        self._line = x.ravel()

    def __getitem__(self, index: Any) -> Any:
        return self._line[index]

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._line)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._line.__array__(dtype, copy)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError("x.flat is read-only on a device; write x.reshape(-1)[index] = value, or x[...] = values")
