"""``Commands``: what is called on a simulation, in order, and its state made again after a loss."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from callboard.actors.errors import ActorStopped
from callboard.core.errors import ContextLost, NumericalError, Unrecoverable
from callboard.device.client.handle import Device
from callboard.realtime.base.history import Command, History, Kept
from callboard.realtime.base.live import Live
from callboard.realtime.base.rule import HostArrays, Rule, off_loop

__all__ = ["Commands", "Diverged"]

C = TypeVar("C")

IN_FLIGHT = 64
"""Commands that are called and not answered; further ones wait."""
ROOM = 32
"""Ops that a command may call at once."""
ATTEMPTS = 3
"""Losses in a row after which commands that were in flight at all of them fail."""

_log = logging.getLogger(__name__)


class Diverged(NumericalError):
    """Numbers of the state are not finite any more; the simulation is back at its last snapshot."""


class Commands(Generic[C]):
    """Runs commands at once, in the order of the calls; keeps what is needed to run them again.

    Args:
        device, rule: See :class:`.Simulation`.
        kept: The state to begin with.
        every: Steps between two copies of the state.

    Attributes:
        history: The last copy, and the commands since then.
        state: Why none are taken; empty while they are.
        since: Step of the last copy, also of one that has not arrived.
        in_flight: Commands that are not answered.
        losses, lost, copies: See :class:`.SimulationStats`.
    """

    def __init__(self, device: Device, rule: Rule[C], kept: Kept[C], every: int) -> None:
        self.history = History(kept)
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self.state = "not started: use it in an async with statement, or await start()"
        self.since = self.in_flight = self.losses = self.lost = self.copies = 0
        self._device, self._rule, self._every = device, rule, every
        self._live: Live[C] | None = None
        self._epoch = 0
        self._restoring: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Put the state on the device."""
        if not self.state.startswith("not"):
            raise RuntimeError(f"a {self._rule.name} is started once{'; it ' * bool(self.state)}{self.state}")
        self.state = ""
        try:
            await self._restored(self._epoch)
            if self._live is not None and self._rule.steps:
                with contextlib.suppress(ContextLost):  # noticed by the first command
                    self._live.prepare()
        except BaseException:  # whatever it is, it has not started
            self.state = "could not be started"
            raise

    async def stop(self) -> None:
        """Take no more commands."""
        self.state, self._live = "has stopped", None
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])

    @property
    def until_copy(self) -> int:
        """Steps until the next copy is due."""
        return max(1, self._every - (self.history.steps - self.since))

    async def run(self, make: Callable[[], Command]) -> Command:
        """Run a command, and wait for its end and for a copy of the state that is due with it.

        Args:
            make: Makes it, when it is its turn. From then until its ops are enqueued nothing is awaited.

        Returns:
            The command, which has its value.
        """
        async with self._room:
            await self._device.room(ROOM)
            await self._is_live()
            return await self._run(make())

    async def _is_live(self) -> None:
        while True:
            if self.state:
                raise ActorStopped(f"this {self._rule.name} {self.state}")
            if self._restoring is None and self._live is not None:
                return
            await self._restored(self._epoch)

    async def _run(self, command: Command) -> Command:
        epoch, history, live = self._epoch, self.history, self._live
        assert live is not None
        history.add(command)
        self.in_flight += 1
        copy: asyncio.Future[HostArrays] | None = None
        try:
            reply = command.run(live)
            at = Kept(history.steps, history.time, live.config, {})
            if command.steps and history.steps - self.since >= self._every:
                self.since, copy = history.steps, live.read()
            command.value = await reply
            history.ended(command)
            if copy is not None:
                await self._take(at._replace(state=await copy), command, history)
        except (Diverged, Unrecoverable):
            raise
        except Exception as error:  # a loss, or an op that failed: without it, the state is made again
            if self.state:
                raise
            await self._restored(epoch, error)
        finally:
            self.in_flight -= 1
            if copy is not None and history is self.history and command in history.commands:
                self.since = history.kept.steps  # it was cancelled: the next step takes another copy
        if command.error is not None:
            raise command.error
        return command

    def known(self, state: HostArrays, last: Command) -> None:
        """The state after ``last`` is this, without a copy: nothing before it needs to be called again."""
        history = self.history
        if last in history.commands:
            self.since = last.at
            history.take(Kept(last.at, history.time, history.config, state), last)

    async def copy(self) -> Kept[C]:
        """A copy of the state, after all that was called before; it serves as the last snapshot, too."""
        async with self._room:
            await self._is_live()
            history, command = self.history, Command(Live.read)
            at = Kept(history.steps, history.time, history.config, {})
            kept = at._replace(state=(await self._run(command)).value)
            await self._take(kept, command, history)
            return kept

    async def begin(self, kept: Kept[C]) -> int:
        """Go on from here; the number of steps before."""
        async with self._room:
            await self._is_live()
            before = self.history.steps
            self.history, self._live = History(kept), None
            await self._restored(self._epoch)
            return before

    async def _take(self, kept: Kept[C], last: Command, history: History[C]) -> None:
        """This is the state after ``last``."""
        bad = await off_loop(kept.state, self._rule.check_finite, kept.state)
        if history is not self.history or last not in history.commands:
            return  # there was a reset, or a later copy was earlier here
        if not bad:
            history.take(kept, last)
            self.copies += 1
            return
        error = Diverged(
            f"{self._rule.name}: {bad} has numbers that are not finite by step {kept.steps}; it went back to step "
            f"{history.kept.steps}. Take smaller steps, or weaker forces"
        )
        for command in list(history.commands):
            history.drop(command, error)
        self._live = None
        await self._restored(self._epoch)
        raise error

    async def _restored(self, epoch: int, error: Exception | None = None) -> None:
        """Wait until the state is on the device again, if it has not been since ``epoch``."""
        if epoch != self._epoch:
            return
        if self._restoring is None:
            self._live = None
            if isinstance(error, ContextLost):
                self.losses += 1
                self.lost += self.history.at_stake
                _log.warning(
                    "%s on %s was lost, and goes on from step %d of %d: %s",
                    *(self._rule.name, self._device.name, self.history.kept.steps, self.history.steps, error),
                )
            self._restoring = asyncio.ensure_future(self._restore())
            self._restoring.add_done_callback(self._has_restored)
        await asyncio.shield(self._restoring)

    def _has_restored(self, task: "asyncio.Task[None]") -> None:
        self._restoring = None
        if not task.cancelled():
            task.exception()  # whoever waited has it

    async def _restore(self) -> None:
        losses = 0
        while True:
            history = self.history
            try:
                await self._device.ready()
                await self._device.room(ROOM + len(history.kept.state))
                live = Live(self._device, self._rule, history.kept.config, history.kept.state)
                if not await _repeated(live, history):
                    continue
            except ContextLost as error:
                losses += 1
                if losses % ATTEMPTS:
                    continue
                pending = [command for command in history.commands if not command.done]
                for command in pending:
                    history.drop(command, error)
                if not pending or losses > ATTEMPTS:
                    raise
                continue
            self._live, self.since = live, history.kept.steps
            self._epoch += 1
            return


async def _repeated(live: Live[Any], history: History[Any]) -> bool:
    """Whether all commands have been called again; one that failed is not among them any more."""
    for command in list(history.commands):
        try:
            await live.device.room(ROOM)
            command.value = await command.run(live)
        except (ContextLost, Unrecoverable):
            raise
        except Exception as error:  # the command's own
            if command.done:  # it did not fail before: without it, this would be another state
                raise
            history.drop(command, error)
            return False
        command.done = True
    return True
