"""``Simulation``: the base of all simulations: commands in order, snapshots, and the state made again after a loss."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock, LoopClock
from callboard.device.client.handle import Device
from callboard.realtime.base import messages, saving
from callboard.realtime.base.asking import Commanded
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.commands import Commands
from callboard.realtime.base.history import Command, Kept
from callboard.realtime.base.live import Live
from callboard.realtime.base.pace import Late, Pace
from callboard.realtime.base.rule import HostArrays, Rule, off_loop
from callboard.realtime.base.stats import SimulationStats

__all__ = ["Frame", "Simulation", "sleep"]

C = TypeVar("C")
S = TypeVar("S")
R = TypeVar("R")

MOST_STEPS = 10_000
"""Steps of one replay."""


class Frame(NamedTuple):
    """A frame of :meth:`Simulation.run`.

    Attributes:
        number: The first is 0.
        steps: Steps of the simulation so far.
        time: Seconds of simulated time.
        skipped: Frames before it that were simulated and not drawn.
        dropped: Frames before it that were not simulated.
    """

    number: int
    steps: int
    time: float
    skipped: int
    dropped: int


class Simulation(Commanded, Generic[C, S]):
    """A state on a device that goes on step by step.

    The state is in arrays of the device, and the steps are replays of a recording: no data comes to the host between
    them. Commands (steps, changes) run in the order of the calls, from any number of tasks. Every ``snapshot_every``
    steps the state is copied to the host. When the context is lost, the simulation goes on from the last copy in the
    next context, and repeats what was done since then: callers wait, and get the same results. A loss so costs at most
    ``snapshot_every`` steps that were done (:attr:`.SimulationStats.lost_frames`).

    A command that fails counts as not called: the state goes back to the last copy and comes forward without it.

    Use it as a context manager, or call :meth:`start` and :meth:`stop`. It belongs to one event loop.

    Args:
        device: Open.
        rule: What a step is.
        config: Its settings.
        state: What to begin with; None: what the rule begins with.
        dt: Seconds of a step without its own.
        snapshot_every: Steps between two copies.
        clock: Tells the time of :meth:`run`; for tests.

    Class attributes:
        Step, Snapshot, Reset, UpdateConfig: The messages that :meth:`ask` takes.
    """

    Step: ClassVar = messages.Step
    Snapshot: ClassVar = messages.Snapshot
    Reset: ClassVar = messages.Reset
    UpdateConfig: ClassVar = messages.UpdateConfig

    def __init__(
        self,
        device: Device,
        rule: Rule[C],
        config: C,
        state: HostArrays | None = None,
        *,
        dt: float = 1 / 60,
        snapshot_every: int = 60,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(device)
        self._rule = rule
        self._dt = number("dt", dt, above=0.0)
        self._clock = clock or LoopClock()
        self._first = rule.state(config) if state is None else state
        rule.check_state(self._first, config)
        kept = Kept(0, 0.0, config, self._first)
        self._commands: Commands[C] = Commands(device, rule, kept, count("snapshot_every", snapshot_every))
        self._drawn = self._skipped = self._dropped = 0
        self._budget = 0.0

    # -- commands ------------------------------------------------------------------------------------------------------

    async def step(self, dt: float | None = None, steps: int = 1) -> int:
        """Take steps, and return how many have been taken since the start.

        Args:
            dt: Seconds of each; None: the simulation's own.
            steps: How many.

        Raises:
            Diverged: Numbers of the state are not finite any more; found when the next snapshot is taken.
            ValueError: ``dt`` or ``steps`` is not positive.
        """
        seconds = self._dt if dt is None else number("dt", dt, above=0.0)
        left = count("steps", steps)

        def part() -> Command:
            n = min(left, MOST_STEPS, commands.until_copy)
            return Command(functools.partial(_stepped, seconds, n), n, n * seconds)

        commands, done = self._commands, 0
        while left:
            command = await commands.run(part)
            left -= command.steps
            done = command.at
        return done

    async def snapshot(self) -> S:
        """Copy the state to the host, as it is after all that was called before."""
        kept = await self._commands.copy()
        return await off_loop(kept.state, self._snapshot_of, kept)

    def _snapshot_of(self, kept: Kept[C]) -> S:
        raise NotImplementedError

    async def reset(self, state: Any = None) -> int:
        """Begin again at step 0, and return the number of steps before.

        Args:
            state: What to begin with; None: what the simulation was made with.
        """
        config, arrays = (self.config, self._first) if state is None else self._state_of(state)
        self._rule.check_state(arrays, config)
        return await self._commands.begin(Kept(0, 0.0, config, arrays))

    def _state_of(self, state: Any) -> tuple[C, HostArrays]:
        """The arrays of what a caller gives as a state, and the configuration that has room for it."""
        raise NotImplementedError

    async def update_config(self, config: C | None = None, **changes: Any) -> None:
        """Go on with another configuration, from the next step.

        Args:
            config: The new one; None: the present one.
            changes: Fields of it to replace: ``gravity=(0, -1.6, 0)``.

        Raises:
            TypeError, ValueError: A field is unknown, or has a value that it may not have; nothing is changed.
        """
        present = self.config
        if config is not None and type(config) is not type(present):
            raise TypeError(f"config is {config!r:.80}; pass a {type(present).__name__}")

        def made() -> Command:  # from the configuration that the commands before have left
            base = self.config if config is None else config
            new = self._adapted(_changed(base, self._merged(base, changes)))
            self._rule.check_state(self._commands.history.kept.state, new)
            return Command(functools.partial(_configured, new), config=new)

        await self._commands.run(made)

    def _merged(self, config: C, changes: dict[str, Any]) -> dict[str, Any]:
        """Changes of a caller, with what of the configuration's fields they leave as it is."""
        return changes

    def _adapted(self, config: C) -> C:
        """A configuration of a caller with what follows from the present one."""
        return config

    @messages.Step.handles
    def _on_step(self, m: messages.Step) -> Awaitable[int]:
        return self.step(m.dt, m.steps)

    @messages.Snapshot.handles
    def _on_snapshot(self, m: messages.Snapshot) -> Awaitable[Any]:
        return self.snapshot()

    @messages.Reset.handles
    def _on_reset(self, m: messages.Reset) -> Awaitable[int]:
        return self.reset(m.state)

    @messages.UpdateConfig.handles
    def _on_update(self, m: messages.UpdateConfig) -> Awaitable[None]:
        return self.update_config(m.config, **m.changes)

    async def call(self, run: Callable[[Live[C]], Awaitable[R]]) -> R:
        """A blueprint's own command: ``run`` enqueues ops on the live arrays, and is called again after a loss.

        Args:
            run: Returns what is awaited for the command's value. It has checked its operands before, and the same call
                on the same state always does the same.
        """
        value: R = (await self._commands.run(lambda: Command(run))).value
        return value

    # -- frames --------------------------------------------------------------------------------------------------------

    async def run(
        self,
        fps: float = 60.0,
        *,
        steps_per_frame: int = 1,
        dt: float | None = None,
        frames: int | None = None,
        late: Late = "skip",
    ) -> AsyncGenerator[Frame, None]:
        """Take steps at a fixed rate: ``async for frame in simulation.run(fps=30): show(await simulation.picture())``.

        A frame is given when its time has come and its steps are done. The next one begins when the consumer asks for
        it: one that is slower than ``fps`` gets fewer frames, and nothing is queued.

        Args:
            fps: Frames a second.
            steps_per_frame: Steps of each.
            dt: Seconds of a step; None: a frame's time, divided by its steps.
            frames: Stop after this number; None: never.
            late: What a late frame costs. ``"skip"``: up to 4 frames in a row are simulated and not given, beyond that
                time is dropped. ``"slow"``: every frame is given, and simulated time passes slower.
        """
        per_frame = count("steps_per_frame", steps_per_frame)
        pace = Pace(fps, late, self._clock.time())
        seconds = 1.0 / (fps * per_frame) if dt is None else number("dt", dt, above=0.0)
        most = None if frames is None else count("frames", frames, least=0)
        drawn = 0
        while most is None or drawn < most:
            turn = pace.next(self._clock.time())
            if turn.wait > 0:
                await sleep(self._clock, turn.wait)
            began = self._clock.time()
            steps = await self.step(seconds, turn.frames * per_frame)
            self._drawn += 1
            self._skipped += turn.frames - 1
            self._dropped += turn.dropped
            yield Frame(drawn, steps, self._commands.history.time, turn.frames - 1, turn.dropped)
            drawn += 1
            pace.took(self._clock.time() - began)
            self._budget = pace.budget

    async def picture(self, width: int = 320, height: int = 240) -> NDArray[np.uint8]:
        """The state drawn on the host, u8 ``[height, width, 3]``."""
        width, height = count("width", width), count("height", height)
        kept = await self._commands.copy()
        return await off_loop(kept.state, lambda: self._drawing(self._snapshot_of(kept), width, height))

    def _drawing(self, snapshot: S, width: int, height: int) -> NDArray[np.uint8]:
        raise NotImplementedError(f"a {self._rule.name} has no picture")

    # -- files ---------------------------------------------------------------------------------------------------------

    async def save(self, path: str | PathLike[str]) -> None:
        """Write the state and the configuration to a file, which :meth:`load` reads."""
        kept = await self._commands.copy()
        about = {
            "blueprint": self._rule.name,
            "steps": kept.steps,
            "time": kept.time,
            "config": msgspec.to_builtins(kept.config, enc_hook=_plain),
        }
        await asyncio.to_thread(saving.write, Path(path), about, kept.state)

    async def load(self, path: str | PathLike[str]) -> int:
        """Go on from a file; returns its number of steps.

        Raises:
            ValueError: It is damaged, or of another blueprint.
        """
        about, arrays = await asyncio.to_thread(saving.read, Path(path), self._rule.name)
        try:
            config = msgspec.convert(about["config"], type(self.config))
        except msgspec.ValidationError as error:
            raise ValueError(f"{path}: its configuration does not fit this version: {error}") from error
        self._rule.check_state(arrays, config)
        kept = Kept(about["steps"], about["time"], config, arrays)
        await self._commands.begin(kept)
        return kept.steps

    # -- figures -------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> C:
        """The present configuration."""
        return self._commands.history.config

    def stats(self) -> SimulationStats:
        """Figures since the start."""
        commands, history = self._commands, self._commands.history
        return SimulationStats(
            steps=history.steps,
            time=history.time,
            snapshot=history.kept.steps,
            snapshots=commands.copies,
            losses=commands.losses,
            lost_frames=commands.lost,
            in_flight=commands.in_flight,
            drawn=self._drawn,
            skipped=self._skipped,
            dropped=self._dropped,
            budget=self._budget,
        )

    def __repr__(self) -> str:
        history = self._commands.history
        return f"<{type(self).__name__} on {self._device.name}, {history.steps} steps, {history.time:.3f} s>"


def _stepped(seconds: float, steps: int, live: Live[Any]) -> Awaitable[Any]:
    reply: Awaitable[Any] = live.step(seconds, steps)
    return reply


def _configured(config: Any, live: Live[Any]) -> Awaitable[None]:
    live.configure(config)
    live.prepare()
    return _nothing()


async def _nothing() -> None:
    """Nothing to wait for."""


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait by this clock."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, woken.set_result, None)
    try:
        await woken
    finally:
        timer.cancel()


def _plain(value: Any) -> Any:
    """A number or an array of NumPy as Python's."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"the configuration has {value!r:.80}, which no file can keep; use numbers")


def _changed(config: Any, changes: dict[str, Any]) -> Any:
    """A configuration with some fields replaced.

    Raises:
        TypeError: It has no such field; names those that it has.
    """
    fields = msgspec.structs.asdict(config)
    unknown = [name for name in changes if name not in fields]
    if unknown:
        raise TypeError(f"{type(config).__name__} has no field {unknown[0]!r}; it has {', '.join(fields)}")
    return type(config)(**{**fields, **changes})
