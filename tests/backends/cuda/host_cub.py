"""Stand-ins for the kernels of ``data/cub*.cu``, from their argument structures."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from host_driver import HostDriver, HostKernels, array_at

from callboard.backends.cuda.cub.arguments import CubArgs
from callboard.core.dtype import DTYPES

JOINS: dict[str, Callable[[Any, Any], Any]] = {
    "return (T)(a + b);": np.add,
    "return (T)(a * b);": np.multiply,
    "return a != a ? a : b != b || b < a ? b : a;": np.minimum,
    "return a != a ? a : b != b || b > a ? b : a;": np.maximum,
    "return a > b ? a : b;": np.maximum,
    "return b ? b : a;": lambda a, b: b or a,
}
KINDS = {"i32": np.int32, "i64": np.int64}
CTYPES = {
    "Half": "f16",
    "Brain": "bf16",
    "float": "f32",
    "double": "f64",
    "signed char": "i8",
    "short": "i16",
    "int": "i32",
    "i64": "i64",
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
}


def array(address: int | None, dtype: Any, n: int) -> Any:
    """A line of n elements."""
    return array_at(address or 0, np.dtype(dtype), (n,), (1,))


def wide(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x


class CubDriver(HostDriver):
    """One whose kernels are those of parallel primitives, too.

    Attributes:
        texts: Of compiled kernels, by function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[int, str] = {}
        self.grid = 0

    def launch_kernel(self, function: int, *arguments: Any) -> int:
        name = self.functions[function]
        work = getattr(self, f"cub_{name.split('_')[0]}", None)
        if work is None:
            return super().launch_kernel(function, *arguments)
        grid, stream, params = arguments[0:3], arguments[7], arguments[8]
        assert all(n > 0 for n in grid)
        assert stream
        p = CubArgs.from_address(params[0])
        self.grid = grid[0]
        if name == "scan_rows":
            self._scan_rows(p, self.texts[function])
        else:
            with np.errstate(all="ignore"):
                work(p, *name.split("_")[1:])
        return self._enqueued(f"kernel {name}", stream)

    def _of(self, address: int | None, dtype: Any, n: int) -> Any:
        assert n <= 0 or self.on_device(address or 0, n * np.dtype(dtype).itemsize), (address, dtype, n)
        return array(address, dtype, max(n, 0))

    def _items(self, p: CubArgs) -> int:
        return p.n if not p.d else int(min(self._of(p.d, np.int64, 1)[0], p.room))

    # -- by elements ---------------------------------------------------------------------------------------------------

    def cub_canonical(self, p: CubArgs, dtype: str) -> None:
        kind = DTYPES[dtype].np
        x = self._of(p.a, kind, p.n)
        self._of(p.out, kind, p.n)[...] = np.where(np.isnan(wide(x)), kind.type(np.nan), x)

    def cub_nans(self, p: CubArgs, work: str, *rest: str) -> None:
        kind = DTYPES[rest[-1]].np
        state, line = self._of(p.d, np.int64, 3 + p.m), self._of(p.out, kind, p.n)
        odd, negative = np.isnan(wide(line)), np.signbit(wide(line))
        if work == "looked":
            stray, placed = (int((odd & (negative == sign)).sum()) for sign in (True, False))
            own = line[:placed] if p.least else line[p.n - placed :]
            ends = {own[:1].tobytes(), own[-1:].tobytes()}
            state[:3] = stray, placed, stray > 0 or len(ends) > 1
            return
        stray, placed, again = (int(n) for n in state[:3])
        given = self._of(p.a, kind, p.n)
        where = np.flatnonzero(np.isnan(wide(given)))
        part = -(-p.n // p.m)
        if work == "counted" and again:
            assert self.grid == p.m
            state[3:] = np.bincount(where // part, minlength=p.m)
        nans = stray + placed
        numbers, first = p.n - nans, placed if p.least else stray
        lines = [(p.out, p.c, given)]
        if p.k:
            lines.append((p.second, (p.c or 0) + p.room, self._of(p.b, f"V{p.k}", p.n)))
        for at, aside, source in lines:
            out = self._of(at, source.dtype, p.n)
            if work == "left" and stray:
                self._of(aside, source.dtype, numbers)[...] = out[first : first + numbers]
            if work == "put" and again:
                assert state[3:].sum() == nans
                if stray:
                    out[nans if p.least else 0 :][:numbers] = self._of(aside, source.dtype, numbers)
                out[0 if p.least else numbers :][:nans] = source[where]

    def cub_rounded(self, p: CubArgs, dtype: str) -> None:
        assert dtype in ("f16", "bf16")
        self._of(p.out, DTYPES[dtype].np, p.n)[...] = self._of(p.a, np.float32, p.n)

    def cub_extreme(self, p: CubArgs, *rest: str) -> None:
        parts = rest[0] == "parts"
        kind = DTYPES[rest[-1]].np
        rows = self.rows(p, parts)
        x = wide(self._of(p.a, kind, rows * p.n)).reshape(rows, p.n)
        find = np.argmin if p.least else np.argmax
        if not parts:
            given = self._of(p.b, np.int64, rows * p.m).reshape(rows, p.m)
            for row in range(rows):
                own = np.sort(given[row][given[row] >= 0])
                self._of(p.out, np.int64, rows)[row] = own[find(x[row][own])]
            return
        for row in range(rows):
            for part in range(p.m):
                own = np.flatnonzero(np.arange(p.n) // 256 % p.m == part)
                self._of(p.out, np.int64, rows * p.m)[row * p.m + part] = own[find(x[row][own])] if own.size else -1

    def rows(self, p: CubArgs, parts: bool) -> int:
        """As many as the launch has blocks for."""
        return self.grid // p.m if parts else self.grid

    def _bound(self, p: CubArgs, dtype: str, side: Any) -> None:
        kind = DTYPES[dtype].np
        x, values = (wide(self._of(at, kind, n)) for at, n in ((p.a, p.n), (p.b, p.m)))
        self._of(p.out, np.int64, p.m)[...] = np.searchsorted(x, values, side=side)

    def cub_lower(self, p: CubArgs, dtype: str) -> None:
        self._bound(p, dtype, "left")

    def cub_upper(self, p: CubArgs, dtype: str) -> None:
        self._bound(p, dtype, "right")

    def _counted(self, p: CubArgs, dtype: str, places: Callable[[Any], Any]) -> None:
        assert not p.shared or p.m * p.bins * 4 <= 48 << 10
        x = wide(self._of(p.a, DTYPES[dtype].np, p.n))
        channel, at = np.arange(p.n) % p.k, places(x)
        kept = (channel < p.m) & (at >= 0)
        np.add.at(self._of(p.out, np.int64, p.m * p.bins), channel[kept] * p.bins + at[kept], 1)

    def cub_even(self, p: CubArgs, dtype: str) -> None:
        def places(x: Any) -> Any:
            x = x.astype(np.float64)
            inside = (x >= p.lower) & (x < p.upper)
            at = np.floor((np.where(inside, x, p.lower) - p.lower) * p.scale).astype(np.int64)
            return np.where(inside, np.minimum(at, p.bins - 1), -1)

        self._counted(p, dtype, places)

    def cub_ranged(self, p: CubArgs, dtype: str) -> None:
        levels = wide(self._of(p.b, DTYPES[dtype].np, p.bins + 1))

        def places(x: Any) -> Any:
            at = np.searchsorted(levels, x, side="right") - 1
            return np.where(at < p.bins, at, -1)

        self._counted(p, dtype, places)

    # -- by indices ----------------------------------------------------------------------------------------------------

    def cub_iota(self, p: CubArgs, index: str) -> None:
        self._of(p.out, KINDS[index], p.n)[...] = np.arange(p.n)

    def cub_begins(self, p: CubArgs, index: str) -> None:
        self._of(p.out, KINDS[index], p.n)[...] = np.arange(p.n) * p.m

    def cub_local(self, p: CubArgs, index: str) -> None:
        self._of(p.out, np.int64, p.n)[...] = self._of(p.a, KINDS[index], p.n) % p.m

    def cub_row(self, p: CubArgs, index: str) -> None:
        self._of(p.out, np.uint32, p.n)[...] = self._of(p.a, KINDS[index], p.n) // p.m

    def cub_segment(self, p: CubArgs, index: str, offset: str) -> None:
        offsets = self._of(p.b, KINDS[offset], p.m + 1)
        at = np.searchsorted(offsets, self._of(p.a, KINDS[index], p.n), side="right") - 1
        self._of(p.out, np.uint32, p.n)[...] = np.clip(at, 0, p.m - 1)

    def cub_lengths(self, p: CubArgs, index: str) -> None:
        found = int(self._of(p.d, np.int64, 1)[0])
        last = self._items(p)
        ends = np.append(self._of(p.a, KINDS[index], found), p.m)
        self._of(p.out, np.int64, last)[...] = np.diff(ends)[:last]

    def cub_take(self, p: CubArgs, size: str, index: str) -> None:
        last = self._items(p)
        at = self._of(p.b, KINDS[index], last)
        source = self._of(p.a, f"V{size}", int(at.max(initial=-1)) + 1)
        self._of(p.out, f"V{size}", last)[...] = source[at]

    def cub_head(self, p: CubArgs, size: str, index: str) -> None:
        last = self._items(p)
        self._of(p.out, f"V{size}", last)[...] = self._of(p.a, f"V{size}", last)

    def cub_top(self, p: CubArgs, size: str, index: str) -> None:
        rows = p.n // p.k
        at = self._of(p.b, KINDS[index], rows * p.m).reshape(rows, p.m)[:, : p.k].reshape(-1)
        self._of(p.out, f"V{size}", p.n)[...] = self._of(p.a, f"V{size}", rows * p.m)[at]
        self._of(p.second, np.int64, p.n)[...] = at % p.m

    def cub_parts(self, p: CubArgs, size: str, index: str) -> None:
        first, second = self._of(p.d, np.int64, 2)
        lines = self._of(p.b, KINDS[index], 3 * p.room).reshape(3, p.room)
        at = np.concatenate([lines[0, :first], lines[1, :second], lines[2, : p.n - first - second]])
        self._of(p.out, f"V{size}", p.n)[...] = self._of(p.a, f"V{size}", p.n)[at]

    def cub_sizes(self, p: CubArgs, index: str) -> None:
        first, second = self._of(p.d, np.int64, 2)
        sizes = [first, p.n - first] if p.k == 2 else [first, second, p.n - first - second]
        self._of(p.out, np.int64, p.k)[...] = sizes

    def cub_repeat(self, p: CubArgs, size: str, index: str) -> None:
        last = self._items(p)
        at = np.searchsorted(self._of(p.b, np.int64, p.m), np.arange(last), side="right")
        self._of(p.out, f"V{size}", last)[...] = self._of(p.a, f"V{size}", p.m)[at]

    # -- scans of rows -------------------------------------------------------------------------------------------------

    def cub_scan(self) -> None:
        """Its text says what it does; see :meth:`_scan_rows`."""

    def _scan_rows(self, p: CubArgs, text: str) -> None:
        kinds = [re.search(rf"\ntypedef (.+) {name};", text) for name in ("A", "R")]
        work, result = (DTYPES[CTYPES[found[1]]].np for found in kinds if found)
        source = DTYPES[CTYPES[re.findall(r"\ntypedef (.+) T;", text)[-1]]].np
        body = re.findall(r"#line 1\n(.+)\n}", text)[0]
        x = self._of(p.a, source, p.m * p.n).reshape(p.m, p.n).astype(work)
        out = self._of(p.out, result, p.m * p.n).reshape(p.m, p.n)
        start = np.frombuffer(int(p.start).to_bytes(8, "little"), work, 1)
        join = JOINS[body]
        with np.errstate(all="ignore"):
            for row in range(p.m):
                line = np.concatenate([start, x[row]])
                assert isinstance(join, np.ufunc)
                found = join.accumulate(line, dtype=work)
                out[row] = found[:-1] if p.exclusive else found[1:]


def compiled(kernels: HostKernels, source: str, text: bytes, name: str) -> int:
    """In place of ``HostKernels.compile``."""
    function = kernels.get(source, name)
    kernels._driver.texts[function] = text.decode()  # type: ignore[attr-defined]
    return function
