"""``Keeper``: a shard that survives the loss of its device: a snapshot in host memory, and the updates since then."""

import itertools
import logging
from collections.abc import Sequence
from typing import Any

from callboard.actors.props import Props
from callboard.core.errors import ContextLost, Unrecoverable
from callboard.device.client.handle import Device
from callboard.device.client.residents.ref import ResidentRef
from callboard.train.kinds import Optimizer
from callboard.train.parameterserver.layout import Part, Piece
from callboard.train.parameterserver.shard import Shard
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.states import State

__all__ = ["Keeper"]

REPEATS = 20
"""Losses in a row after which a call fails."""

_log = logging.getLogger(__name__)


class Keeper:
    """Calls a shard, and brings it up to date where it has lost its weights.

    Calls are made one after the other.

    Args:
        pieces, optimizer: See :class:`.Shard`.
        arrays: The first weights.
        devices: Where the shard may be, the preferred one first; it moves on when that has stopped for good.
        every: Updates between two snapshots.

    Attributes:
        losses: How often the shard was brought up to date.
    """

    def __init__(
        self, pieces: list[Piece], optimizer: Optimizer, arrays: list[Any], devices: Sequence[Device], every: int
    ) -> None:
        self.losses = 0
        self._what = pieces, optimizer
        self._devices = list(devices)
        self._every = every
        self._kept: State | list[Any] = arrays
        self._since: list[tuple[int, list[Part], Rates]] = []
        self._is_ahead = False
        self._shard = self._started(self._devices[0])

    def _started(self, device: Device) -> ResidentRef[Shard]:
        return device.actor_of(Props(Shard, *self._what, device.generation))

    async def start(self) -> None:
        """Give the shard its weights."""
        await self._call(0, Shard.weights, [])
        self.losses = 0

    async def update(self, version: int, parts: list[Part], rates: Rates) -> None:
        """Make this version from the one before. It counts once it is kept."""
        await self._call(version - 1, Shard.update, parts, rates, goal=version)

    def keep(self, version: int, parts: list[Part], rates: Rates) -> None:
        """Every shard has made this version."""
        self._since.append((version, parts, rates))

    @property
    def is_due(self) -> bool:
        """It is time for a snapshot."""
        return len(self._since) >= self._every

    async def snapshot(self, version: int) -> None:
        """Rely on the state of this version."""
        self.take(await self.state(version))

    def take(self, state: State) -> None:
        """Rely on this state from here on."""
        self._kept = state
        self._since.clear()

    def roll_back(self) -> None:
        """The update that began last does not count."""
        self._is_ahead = True

    async def weights(self, version: int, chosen: list[tuple[int, Any]] | None = None) -> list[Any]:
        """See :meth:`.Shard.weights`."""
        found: list[Any] = await self._call(version, Shard.weights, chosen)
        return found

    async def groups(self, version: int) -> Groups:
        """See :meth:`.Shard.groups`."""
        found: Groups = await self._call(version, Shard.groups)
        return found

    async def state(self, version: int) -> State:
        """See :meth:`.Shard.state`."""
        found: State = await self._call(version, Shard.state)
        return found

    async def stop(self) -> None:
        """Stop the shard."""
        await self._shard.stop_and_wait(timeout=5.0)

    async def _call(self, version: int, method: Any, *args: Any, goal: int | None = None) -> Any:
        for repeats in itertools.count():
            try:
                if not self._is_ahead:
                    found = await self._shard.call(method, version if goal is None else goal, *args)
                    if found is not None:
                        return found
                await self._bring_up()
            except ContextLost as error:
                if repeats >= REPEATS:
                    raise
                _log.warning("a shard of the weights was lost with %s: %s", self._devices[0].name, error)
                await self._ready()
            except Unrecoverable as error:
                self._move(error)
        raise AssertionError("unreachable")

    async def _bring_up(self) -> None:
        """Have the shard make the last version that counts, from the snapshot."""
        if isinstance(self._kept, State):
            await self._shard.call(Shard.load, self._kept)
        else:
            await self._shard.call(Shard.begin, self._kept)
        for update in self._since:
            await self._shard.call(Shard.update, *update)
        self._is_ahead = False
        self.losses += 1

    async def _ready(self) -> None:
        try:
            await self._devices[0].ready()
            await self._shard.ready()
        except Unrecoverable as error:
            self._move(error)

    def _move(self, error: Unrecoverable) -> None:
        if len(self._devices) == 1:
            raise error
        lost = self._devices.pop(0)
        _log.warning("a shard of the weights moves to %s: %s has stopped", self._devices[0].name, lost.name)
        self._shard = self._started(self._devices[0])
