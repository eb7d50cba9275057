"""``Live``: the arrays of a simulation in one generation of a device, and the recording of its step."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from callboard.core.errors import DeviceStopped
from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.rule import HostArrays, Rule

__all__ = ["Later", "Live", "fetched", "lent"]

C = TypeVar("C")
LARGE = 1 << 19
"""Bytes that take longer to copy than to lend."""


def lent(device: Device, array: NDArray[Any]) -> GpuRef:
    """An array that stays as it is, on the device; a large one is not copied to a CPU in this process."""
    if array.nbytes >= LARGE and device.backend == "cpu" and device.isolation == "thread":
        with contextlib.suppress(BufferError):  # no context is ready: a copy waits for one
            return device.adopt(array)
    return device.put(array)


def fetched(device: Device, ref: GpuRef) -> Awaitable[NDArray[Any]]:
    """The elements, for a caller who may change them; asked for at once. Later ops must not write the array."""
    if ref.nbytes >= LARGE and device.backend == "cpu" and device.isolation == "thread":
        return Later(partial(_viewed, device, ref))
    return Later(partial(_copied, ref.get()))


class Later:
    """A coroutine that is made when this is awaited: what a loss drops before that leaves nothing behind."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._make = make

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._make().__await__()


async def _viewed(device: Device, ref: GpuRef) -> NDArray[Any]:
    await ref
    try:
        return device.host_view(ref)
    except (BufferError, DeviceStopped):  # the context has ended since: the op that follows says how
        return await _copied(ref.get())


async def _copied(reply: Awaitable[Any]) -> NDArray[Any]:
    found = np.asarray(await reply)
    return found if found.flags.writeable else found.copy()


class Live(Generic[C]):
    """All methods return at once; the device runs what they enqueue in the order of the calls.

    Args:
        device: Where it runs.
        rule: What a step is.
        config: See :class:`.Rule`.
        state: Put on the device.

    Attributes:
        config: The present one.
        arrays: All arrays, by name.
        state: Names of those that steps write.
    """

    def __init__(self, device: Device, rule: Rule[C], config: C, state: HostArrays) -> None:
        self.device, self.config = device, config
        self.arrays: dict[str, GpuRef] = {"dt": device.put(np.zeros(1, "f4"))}
        self.state = tuple(state)
        self._rule = rule
        self._dt = 0.0
        self._step: Any = None
        self._constants: HostArrays = {}
        self.arrays |= {name: device.put(array) for name, array in state.items()}
        self.configure(config)

    def configure(self, config: C) -> None:
        """Go on with this configuration; with the same recording if all that differs is in arrays."""
        found = self._rule.constants(config)
        kept = self._step is not None and self._rule.recorded(config) == self._rule.recorded(self.config)
        kept = kept and {n: a.shape for n, a in found.items()} == {n: a.shape for n, a in self._constants.items()}
        for name, array in found.items():
            if not kept:
                self.arrays[name] = self.device.put(array)
            elif not np.array_equal(array, self._constants[name]):
                self.device.put(array, out=self.arrays[name])
        self.config, self._constants = config, found
        if not kept:
            self._step = None

    def prepare(self) -> None:
        """Record a step, so that one that cannot be recorded is refused before any is taken."""
        if self._step is None:  # the one before is closed when the last replay is done
            with self.device.record(dt=self.arrays["dt"]) as step:
                self._rule.step(self.device, self.arrays, self.config)
            self._step = step

    def replace(self, name: str, ref: GpuRef) -> None:
        """Have steps use this array from now on."""
        self.arrays[name] = ref
        self._step = None

    def step(self, dt: float, steps: int) -> Any:
        """Take steps; an awaitable of their end."""
        self.prepare()
        if dt == self._dt:
            return self._step.replay(steps)
        self._dt = dt
        return self._step.replay(steps, dt=np.full(1, dt, "f4"))

    def read(self) -> "asyncio.Future[HostArrays]":
        """Copies of the state as it is after all that was called before."""
        replies = {name: self.arrays[name].get() for name in self.state}

        async def arrived() -> HostArrays:
            return {name: np.asarray(await reply) for name, reply in replies.items()}

        task = asyncio.ensure_future(arrived())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # not awaited if the command fails
        return task
