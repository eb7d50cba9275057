"""An actor that uses one buffer again and again, importable by context hosts."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
from tests.device.residents.lab import wait_at

import callboard as cb


class Buffers(cb.ResidentActor):
    def __init__(self) -> None:
        self._buffer: Any = np.empty(0)

    def echo(self, gate: str, item: Any) -> Any:
        """Give it back, once the test has let it through."""
        wait_at(gate)
        return item

    def repeat(self, item: Any, count: int) -> Iterator[Any]:
        for _ in range(count):
            yield item

    def _filled(self, number: int, size: int) -> Any:
        if len(self._buffer) != size:
            self._buffer = np.empty(size, np.float32)
        self._buffer[:] = number
        return self._buffer

    def fill(self, number: int, size: int) -> Any:
        return self._filled(number, size)

    async def fill_later(self, number: int, size: int) -> Any:
        return self._filled(number, size)

    def fills(self, count: int, size: int) -> Iterator[Any]:
        for number in range(count):
            yield self._filled(number, size)

    async def fills_later(self, count: int, size: int) -> AsyncIterator[Any]:
        for number in range(count):
            yield self._filled(number, size)
