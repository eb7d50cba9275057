"""A stand-in for ``nvmath.bindings.cufft`` that executes on host memory, and refuses what cuFFT was seen to refuse.

It reads and writes exactly where the advanced layout says, wants aligned arrays and a work area, and spoils the input
where cuFFT does. Functions of a user's double here, whatever their source says.
"""

import ctypes
import itertools
import math
import re
from typing import Any, NamedTuple

import numpy as np
from host_driver import HostDriver, StatusError, array_at

REALS: dict[int, Any] = {2: np.float16, 0: np.float32, 1: np.float64}
COMPLEXES: dict[int, Any] = {6: np.dtype([("re", "f2"), ("im", "f2")]), 4: np.complex64, 5: np.complex128}
WORK = 4096
INVALID_PLAN, INVALID_VALUE, EXEC_FAILED, NO_WORKSPACE, NOT_SUPPORTED = 1, 4, 6, 13, 16


class CufftError(StatusError):
    pass


class Made(NamedTuple):
    """What a plan was filled with."""

    n: list[int]
    batch: int
    sides: tuple[tuple[int, list[int], int, int], ...]
    """Type, embed, stride and dist of input and output."""


def checked(right: bool, status: int = INVALID_VALUE) -> None:
    if not right:
        raise CufftError(status)


def nested(embed: list[int], stride: int) -> tuple[int, ...]:
    """The steps of the axes that lie in these extents."""
    return tuple(stride * math.prod(embed[axis + 1 :]) for axis in range(len(embed)))


def each_once(shape: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Whether the elements lie behind each other, none of them named twice."""
    places = sum(
        np.arange(n).reshape(-1, *[1] * k) * s for k, (n, s) in enumerate(reversed([*zip(shape, steps, strict=True)]))
    )
    return bool((np.sort(np.ravel(places)) == np.arange(math.prod(shape))).all())


class HostCufft:
    """The functions of the binding that the backend calls.

    Attributes:
        plans: What they were filled with.
        areas: Work areas of plans.
        streams: Of plans.
        fails: Statuses by name of a function.
        linked: Functions of plans: name, source, ``cufftXtCallbackType`` and where their data's address is.
    """

    cuFFTError = CufftError  # noqa: N815 - the binding's name

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self._ids = itertools.count(1)
        self.plans: dict[int, Made | None] = {}
        self.areas: dict[int, int] = {}
        self.streams: dict[int, int] = {}
        self.fails: dict[str, int] = {}
        self.linked: dict[int, list[tuple[str, str, int, int]]] = {}

    def _call(self, name: str) -> None:
        if name in self.fails:
            raise CufftError(self.fails[name])

    def get_version(self) -> int:
        self._call("get_version")
        return 12000

    def create(self) -> int:
        self._call("create")
        plan = next(self._ids)
        self.plans[plan] = None
        return plan

    def destroy(self, plan: int) -> None:
        del self.plans[plan]

    def set_auto_allocation(self, plan: int, allocate: int) -> None:
        assert allocate == 0
        assert plan in self.plans

    def set_stream(self, plan: int, stream: int) -> None:
        self.streams[plan] = stream

    def set_work_area(self, plan: int, address: int) -> None:
        self.areas[plan] = address

    def xt_set_jit_callback(self, plan: int, name: int, code: bytes, size: int, kind: int, data: int) -> None:
        self._call("xt_set_jit_callback")
        assert self.plans[plan] is None
        told = ctypes.string_at(name).decode()
        at = ctypes.c_void_p.from_address(data).value or 0
        self.linked.setdefault(plan, []).append((told, code[:size].decode(), kind, at))

    def make_plan1d(self, plan: int, n: int, kind: int, batch: int) -> int:
        return self.xt_make_plan_many(plan, 1, [n], [n], 1, n, 4, [n], 1, n, 4, batch, 4)

    def xt_make_plan_many(
        self,
        plan: int,
        rank: int,
        n: list[int],
        in_embed: list[int],
        in_stride: int,
        in_dist: int,
        in_type: int,
        out_embed: list[int],
        out_stride: int,
        out_dist: int,
        out_type: int,
        batch: int,
        wide: int,
    ) -> int:
        self._call("xt_make_plan_many")
        checked(rank == len(n) == len(in_embed) == len(out_embed) and 1 <= rank <= 3)
        checked(min(n) >= 1 and min(in_stride, in_dist, out_stride, out_dist, batch) >= 1)
        halved = [*n[:-1], n[-1] // 2 + 1]
        sides = ((in_type, in_embed, in_stride, in_dist), (out_type, out_embed, out_stride, out_dist))
        for kind, embed, stride, dist in sides:
            side = halved if kind in COMPLEXES and REALS.keys() & {in_type, out_type} else n
            checked(all(e >= m for e, m in zip(embed[1:], side[1:], strict=True)))
            checked(kind != 2 or stride == 1, NOT_SUPPORTED)
            # Real halves that lie otherwise have not been seen to work.
            assert kind != 2 or each_once((batch, *n), (dist, *nested(embed, stride)))
        checked(wide != 6 or all(m & (m - 1) == 0 for m in n), NOT_SUPPORTED)
        assert wide in COMPLEXES
        self.plans[plan] = Made(n, batch, sides)
        return WORK if max(n) > 8 else 0

    def xt_exec(self, plan: int, x: int, out: int, direction: int) -> None:
        self._call("xt_exec")
        self._driver.streams.add(self.streams[plan])
        made = self.plans[plan]
        checked(made is not None, INVALID_PLAN)
        assert made is not None
        if self.areas.get(plan) in (x, out):
            raise CufftError(EXEC_FAILED)  # also where the work area is empty
        if max(made.n) > 8:
            checked(bool(self.areas.get(plan)), NO_WORKSPACE)
            assert self._driver.on_device(self.areas[plan], WORK)
            array_at(self.areas[plan], "u1", (WORK,), (1,))[...] = 0x7F
        unit = {2: 4, 6: 4, 0: 8, 4: 8, 1: 16, 5: 16}[made.sides[0][0]]
        checked(x % unit == 0 and out % unit == 0)
        view_x, view_out = (self._view(made, which, at) for which, at in enumerate((x, out)))
        kinds = tuple(side[0] in COMPLEXES for side in made.sides)
        axes = tuple(range(1, len(made.n) + 1))
        values = view_x["re"] + 1j * view_x["im"].astype("f8") if view_x.dtype.names else view_x.astype("c16")
        values *= self._factor(plan, 0)
        if kinds == (False, True):
            result = np.fft.rfftn(values.real, axes=axes)
        elif kinds == (True, False):
            result = np.fft.irfftn(values, s=made.n, axes=axes, norm="forward")
            if len(made.n) > 1 and x != out:
                view_x[...] = np.nan
        elif direction < 0:
            result = np.fft.fftn(values, axes=axes)
        else:
            result = np.fft.ifftn(values, axes=axes, norm="forward")
        result = result * self._factor(plan, 4)
        if view_out.dtype.names:
            view_out["re"], view_out["im"] = result.real, result.imag
        else:
            view_out[...] = result

    def _factor(self, plan: int, first: int) -> float:
        """What the plan's function of these four kinds does: it doubles, but for one that stores what it is given."""
        factor = 1.0
        for _, code, kind, data in self.linked.get(plan, ()):
            if first <= kind < first + 4:
                if "*(const void **)data" in code:
                    self._driver.data.append(ctypes.c_void_p.from_address(data).value or 0)
                factor *= float(*re.findall(r"value(?:\.x)? \*= \(real\)([-+.e\d]+)", code) or ["1"])
                factor *= 1 if "out[i] = value; }" in code else 2
        return factor

    def _view(self, made: Made, which: int, address: int) -> "np.ndarray[Any, Any]":
        kind, embed, stride, dist = made.sides[which]
        dtype = np.dtype(COMPLEXES.get(kind) or REALS[kind])
        dims = list(made.n)
        if kind in COMPLEXES and made.sides[1 - which][0] in REALS:
            dims[-1] = dims[-1] // 2 + 1
        shape, steps = (made.batch, *dims), (dist, *nested(embed, stride))
        reach = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
        assert self._driver.on_device(address, reach * dtype.itemsize)
        return array_at(address, dtype, shape, steps)
