"""The shared value: versions, copy on write, writes to regions, its loss with a device."""

import copy
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from callboard.agents.state.errors import StateLost
from callboard.agents.state.regions import Region
from callboard.core.ref.handle import GpuRef
from callboard.core.ref.hostarrays import refuse_masked

__all__ = ["SharedValue", "StateView"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StateView:
    """A snapshot: the state at a version. Later writes do not change it.

    Attributes:
        version: Number of writes before it.
        value: The value: an array or ref that must not be written to.
    """

    version: int
    value: Any


class SharedValue:
    """A value and its version. Arrays are written in place, unless a snapshot shares them: then a copy is.

    Args:
        device: The device of a ref.
    """

    def __init__(self, value: Any, device: Any) -> None:
        self.value: Any = value
        self._device = device
        self.version = 0
        self._views: weakref.WeakSet[StateView] = weakref.WeakSet()
        self._kept: tuple[int, Any] | None = None
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            self.value = value.copy()

    @property
    def length(self) -> int | None:
        """Length of the first axis; None if it is no array."""
        shape = getattr(self.value, "shape", None)
        return int(shape[0]) if shape else None

    def part(self, region: Region) -> Any:
        """The value of a region; of an array, a view."""
        if region is None:
            return self.value
        return self.value[slice(*region)] if isinstance(region, tuple) else self.value[region]

    def snapshot(self) -> StateView:
        """The value as it is now."""
        value = self.value
        if isinstance(value, np.ndarray):
            value = value.view()
            value.flags.writeable = False
        view = StateView(self.version, value)
        self._views.add(view)
        return view

    def replace(self, region: Region, value: Any) -> None:
        """Write a value to a region."""
        if region is None and not isinstance(self.value, np.ndarray | GpuRef):
            self._new(_each(value, _owned))
        elif isinstance(region, str):
            parts: Any = self.value
            self._new({**parts, region: _owned(value)})
        else:
            self.apply(region, lambda part: self._assign(part, value))

    def apply(self, region: Region, write: Callable[[Any], Any]) -> Any:
        """Call a function that writes to a region in place."""
        self._own()
        found = write(self.part(region))
        self.version += 1
        return found

    def _assign(self, part: Any, value: Any) -> None:
        if not isinstance(part, np.ma.MaskedArray):
            refuse_masked(value, "value", "array.filled(value)")
        if isinstance(part, GpuRef):
            source = value if isinstance(value, GpuRef) else self._device.put(np.asarray(value, part.dtype.np))
            self._device.copy(source, out=part)
        else:
            part[...] = value

    def _new(self, value: Any) -> None:
        self.value = value
        self.version += 1

    def _own(self) -> None:
        """Copy what a snapshot shares."""
        if self._views:
            self.value = _each(self.value, self._copied)
            self._views.clear()

    def _copied(self, value: Any) -> Any:
        return self._device.copy(value) if isinstance(value, GpuRef) else copy.deepcopy(value)

    @property
    def _refs(self) -> list[GpuRef[Any]]:
        items = self.value.values() if isinstance(self.value, dict) else (self.value,)
        return [item for item in items if isinstance(item, GpuRef)]

    # -- devices -------------------------------------------------------------------------------------------------------

    async def keep(self) -> int:
        """Copy refs to the host, for :meth:`restore`; returns the version."""
        if self._refs:
            view = self.snapshot()
            items = view.value.items() if isinstance(view.value, dict) else [("", view.value)]
            contents = {
                key: _OnHost(await item.get()) if isinstance(item, GpuRef) else copy.deepcopy(item)
                for key, item in items
            }
            self._kept = view.version, contents if isinstance(view.value, dict) else contents[""]
            return view.version
        return self.version

    def restore(self) -> StateLost | None:
        """Make lost refs again of their last copy; returns what happened, None if none was lost."""
        ref = next((ref for ref in self._refs if ref.is_stale), None)
        if ref is None:
            return None
        self._views.clear()
        where = f"the state of version {self.version} was lost with generation {ref.generation} of {ref.device}"
        if self._kept is None:
            return StateLost(f"{where}; attach it again", ref.generation, self.version)
        version, contents = self._kept
        lost = StateLost(f"{where}; it was made again of version {version}", ref.generation, self.version, version)
        self.value = _each(contents, self._made_again)
        self.version += 1
        return lost

    def _made_again(self, kept: Any) -> Any:
        return self._device.put(kept.array) if isinstance(kept, _OnHost) else copy.deepcopy(kept)


class _OnHost(NamedTuple):
    """The copy of a ref."""

    array: Any


def _each(value: Any, function: Callable[[Any], Any]) -> Any:
    """The value, with each item of a dict, or the one that it is, replaced."""
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    return function(value)


def _owned(value: Any) -> Any:
    """An array in memory of its own; writes to a region of it are in place."""
    return value.copy() if isinstance(value, np.ndarray) else value
