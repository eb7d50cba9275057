"""``Sharded``: the weights as one thing, over the keepers of their ranges."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from callboard.actors.errors import AskTimeout
from callboard.core.errors import ContextLost, DeviceStopped
from callboard.device.client.handle import Device
from callboard.train.kinds import Optimizer
from callboard.train.parameterserver.gradients import Gradients, mean
from callboard.train.parameterserver.keeper import Keeper
from callboard.train.parameterserver.layout import Layout
from callboard.train.replicas.calls import every
from callboard.train.replicas.rates import Groups, Rates
from callboard.train.states import State

__all__ = ["Sharded"]

_log = logging.getLogger(__name__)


class Sharded:
    """A keeper for each device. An update is made by all of them, or counts for none.

    Attributes:
        layout: Which rows each has.
    """

    def __init__(
        self, weights: Mapping[str, Any], optimizer: Optimizer, devices: Sequence[Device], snapshot_every: int
    ) -> None:
        self.layout = Layout(weights, len(devices))
        self._keepers = [
            Keeper(pieces, optimizer, arrays, [*devices[at:], *devices[:at]], snapshot_every)
            for at, (pieces, arrays) in enumerate(zip(self.layout.shards, self.layout.cut(weights), strict=True))
        ]

    async def start(self) -> None:
        """Give each shard its weights."""
        await every(keeper.start() for keeper in self._keepers)

    async def stop(self) -> None:
        """Stop the shards."""

        async def end(keeper: Keeper) -> None:
            with contextlib.suppress(AskTimeout, ContextLost, DeviceStopped):  # it goes with its device
                await keeper.stop()

        await asyncio.gather(*map(end, self._keepers))

    @property
    def losses(self) -> int:
        """How often a shard was brought up to date."""
        return sum(keeper.losses for keeper in self._keepers)

    async def update(self, version: int, several: list[Gradients], rates: Rates) -> None:
        """Make this version from the one before, with the mean of several gradients."""
        merged = mean(several)
        parts = self.layout.parts(merged)
        settings = [rates.only(at) for at in range(len(self._keepers))]
        made = list(zip(self._keepers, parts, settings, strict=True))
        try:
            await every(keeper.update(version, own, sizes) for keeper, own, sizes in made)
        except BaseException:  # some may have made it
            for keeper in self._keepers:
                keeper.roll_back()
            raise
        for keeper, own, sizes in made:
            keeper.keep(version, own, sizes)
        if self._keepers[0].is_due:
            try:
                await every(keeper.snapshot(version) for keeper in self._keepers)
            except (ContextLost, DeviceStopped) as error:  # the update is made, all the same
                _log.warning("no snapshot of version %d: %s", version, error)

    async def weights(self, version: int, rows: Mapping[str, Any]) -> dict[str, Any]:
        """Copies of the weights, of some only the rows."""
        chosen = self.layout.chosen(rows)
        found = await every(
            keeper.weights(version, [(at, numbers) for at, numbers, _ in own])
            for keeper, own in zip(self._keepers, chosen, strict=True)
        )
        return self.layout.gather(found, chosen, rows)

    async def groups(self, version: int) -> list[Groups]:
        """The optimizer of each shard as it was before the first update."""
        return await every(keeper.groups(version) for keeper in self._keepers)

    async def states(self, version: int) -> list[State]:
        """The state of each shard."""
        return await every(keeper.state(version) for keeper in self._keepers)

    def take(self, states: Sequence[State]) -> None:
        """Go on from these."""
        for keeper, state in zip(self._keepers, states, strict=True):
            keeper.take(state)
            keeper.roll_back()
