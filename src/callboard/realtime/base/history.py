"""``History``: the last snapshot of a simulation and the commands since then, from which a lost state is made again."""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, NamedTuple, TypeVar

from callboard.realtime.base.live import Live
from callboard.realtime.base.rule import HostArrays

__all__ = ["Command", "History", "Kept"]

C = TypeVar("C")


class Kept(NamedTuple, Generic[C]):
    """A state in host memory, from which the simulation can go on.

    Attributes:
        steps: Steps since the start.
        time: Seconds since the start.
        config: The configuration then.
        state: The arrays.
    """

    steps: int
    time: float
    config: C
    state: HostArrays


class Command:
    """What was called, in a form that can be called again.

    Args:
        run: Enqueues it; gives its end.
        steps, time: What it adds to the simulation's.
        config: The configuration from then on, if it sets one.
        lasting: It may change the state, so it is called again after a loss even when it has ended.

    Attributes:
        at: Steps of the simulation after it.
        done: It has ended.
        value: What it gave.
        error: Why it counts as not called.
    """

    __slots__ = ("at", "config", "done", "error", "lasting", "run", "steps", "time", "value")

    def __init__(
        self,
        run: Callable[[Live[Any]], Awaitable[Any]],
        steps: int = 0,
        time: float = 0.0,
        config: Any = None,
        *,
        lasting: bool = True,
    ) -> None:
        self.run, self.steps, self.time, self.config, self.lasting = run, steps, time, config, lasting
        self.at = 0
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None


class History(Generic[C]):
    """Commands that have been called, in order, since the last snapshot.

    Attributes:
        kept: The last snapshot.
        commands: Called since then; those that failed are taken out.
        steps, time: Of the simulation, after the last command that was called.
    """

    def __init__(self, kept: Kept[C]) -> None:
        self.kept = kept
        self.commands: list[Command] = []
        self.steps, self.time = kept.steps, kept.time

    def add(self, command: Command) -> None:
        """It has been called."""
        self.commands.append(command)
        self.steps += command.steps
        self.time += command.time
        command.at = self.steps

    def take(self, kept: Kept[C], last: Command) -> None:
        """This is the state after ``last``."""
        del self.commands[: self.commands.index(last) + 1]
        self.kept = kept

    def ended(self, command: Command) -> None:
        """It has its value; one that changes nothing is not kept, nor what it was called with."""
        command.done = True
        if not command.lasting and command in self.commands:
            self.commands.remove(command)

    def drop(self, command: Command, error: BaseException) -> None:
        """It has failed, and counts as not called."""
        command.error = error
        if command in self.commands:
            self.commands.remove(command)
            self.steps -= command.steps
            self.time -= command.time

    @property
    def config(self) -> C:
        """The present configuration."""
        given = (command.config for command in reversed(self.commands) if command.config is not None)
        return next(given, self.kept.config)

    @property
    def at_stake(self) -> int:
        """Steps done since the snapshot, which a loss now costs."""
        done = [n for n, command in enumerate(self.commands) if command.done]  # those before the last are, too
        return sum(command.steps for command in self.commands[: done[-1] + 1]) if done else 0
