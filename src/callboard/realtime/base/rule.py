"""``Rule``: what a blueprint says about itself, and all that the base needs to run it."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device

__all__ = ["Arrays", "HostArrays", "Rule", "off_loop"]

C = TypeVar("C")
T = TypeVar("T")
Arrays = Mapping[str, GpuRef]
"""Arrays on the device, by name. ``"dt"`` is f32[1]: the seconds of the step."""
HostArrays = dict[str, NDArray[Any]]
LARGE = 1 << 20
"""Bytes of a state from which on event loops do not wait for what NumPy computes of it."""


class Rule(ABC, Generic[C]):
    """The steps of a blueprint: ops on arrays of a device, which are recorded once and replayed for each step.

    It has no state. All that changes from step to step is in the arrays, all that an application sets in the
    configuration. An op of its own is a ``@cb.kernel`` with two bodies: NumPy (or Numba) and CUDA.

    Class attributes:
        name: In errors and in files.
        finite: Names of arrays of the state whose numbers must stay finite.
        steps: Whether it takes steps.
    """

    name: ClassVar[str]
    finite: ClassVar[tuple[str, ...]] = ()
    steps: ClassVar[bool] = True

    @abstractmethod
    def state(self, config: C) -> HostArrays:
        """The arrays that a simulation begins with. Steps write them; they are in snapshots and files."""

    def constants(self, config: C) -> HostArrays:
        """Arrays that follow from the configuration, which steps only read. They are made again with each of them."""
        return {}

    def recorded(self, config: C) -> Any:
        """All of a configuration that is in the recording of a step, and not in arrays.

        Where it is equal for two configurations, a simulation goes on with the same recording, and only arrays of
        :meth:`constants` that differ are put on the device.
        """
        return config

    @abstractmethod
    def step(self, device: Device, arrays: Arrays, config: C) -> None:
        """Call the ops of one step, in place.

        It is called inside ``device.record``, where put, get and ops that give numbers are not allowed.
        """

    def check_state(self, arrays: HostArrays, config: C) -> None:
        """Refuse arrays, of a file or a caller, that do not fit the configuration.

        Raises:
            ValueError: Names the array, and what it should be.
        """
        wanted = {name: (array.dtype, array.shape) for name, array in self.state(config).items()}
        for name, (dtype, shape) in wanted.items():
            array = arrays.get(name)
            if array is None:
                raise ValueError(f"{self.name}: the state has no {name!r}; it needs {', '.join(wanted)}")
            if array.dtype != dtype or array.shape != shape:
                raise ValueError(
                    f"{self.name}: {name} is {array.dtype}{list(array.shape)}; this configuration needs "
                    f"{dtype}{list(shape)}"
                )

    def check_finite(self, arrays: HostArrays) -> str:
        """Name of the first array with a number that is not finite; empty if there is none."""
        return next((name for name in self.finite if not np.isfinite(arrays[name]).all()), "")


async def off_loop(state: HostArrays, function: Callable[..., T], *args: Any) -> T:
    """Call a function that takes as long as this copy of a state is large: on a thread, if it is."""
    if sum(array.nbytes for array in state.values()) < LARGE:
        return function(*args)
    return await asyncio.to_thread(function, *args)
