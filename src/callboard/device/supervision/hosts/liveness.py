"""Detection of hung hosts. Pure: heartbeats and time are arguments."""

from collections.abc import Callable, Iterable

__all__ = ["Liveness"]


class Liveness:
    """Judges one host.

    A host is alive when its control thread beats *and* its admitting loop either waits for messages or makes rounds.
    A step that it has announced excuses silence for ``step_timeout`` seconds: it may hold the GIL, as an import does,
    and then no thread of the host beats. It does not excuse that the process does nothing at all meanwhile: it is
    stopped, or waits for what does not come. A step of the admitting thread (import, open) also excuses that it makes
    no rounds, and must end within that time. One of another thread (a prepare, the setup of a resident actor) may take
    longer; it excuses nothing from then on.

    Args:
        hang_after: Seconds of silence that count as a hang.
        step_timeout: Seconds for which an announced step is an excuse.
        at_most: Seconds that one :meth:`pass_time` may add. The watcher calls it at least that often, so a longer pause
            means that this process itself did not run (a debugger, a frozen container), and that time is not the
            host's silence.

    Attributes:
        paused: Set by the application around a long step.
    """

    __slots__ = (
        "_age",
        "_at_most",
        "_hang_after",
        "_others",
        "_rounds",
        "_silent",
        "_step",
        "_step_timeout",
        "_still",
        "_stuck",
        "_unobserved",
        "paused",
    )

    def __init__(self, hang_after: float, step_timeout: float, at_most: float) -> None:
        self._hang_after = hang_after
        self._step_timeout = step_timeout
        self._at_most = at_most
        self._silent = 0.0
        self._unobserved = 0.0  # of the silence
        self._still = 0.0  # seconds of the silence in which the process has done nothing
        self._stuck = 0.0  # up to the last beat
        self._rounds = -1
        self._step = ""
        self._age = 0.0  # of the step
        self._others: dict[str, float] = {}  # steps of other threads, and their ages
        self.paused = False

    def beat(self, rounds: int, waiting: bool, step: str, others: Iterable[str]) -> None:
        """A heartbeat came (fields as in :class:`~callboard.device.protocol.control.Beat`)."""
        if waiting or step or self._step or rounds != self._rounds:
            self._stuck = 0.0
        else:
            self._stuck += self._unmoved
        self._silent = self._unobserved = self._still = 0.0
        self._rounds = rounds
        if step != self._step:
            self._step, self._age = step, 0.0
        self._others = {name: self._others.get(name, 0.0) for name in others}

    @property
    def announced(self) -> bool:
        """True if a long step is in progress, during which the host may write nothing. Any thread."""
        return self.paused or bool(self._step)

    def pass_time(self, elapsed: float, goes_on: Callable[[], bool] = lambda: True) -> str | None:
        """Time has passed since the last call.

        Args:
            elapsed: Seconds.
            goes_on: Whether the silent process has done something since the last call of this function, which a step
                has to excuse.

        Returns:
            Why the host counts as hung, None while it does not.
        """
        if self.paused:
            self._silent = self._unobserved = self._still = self._stuck = self._age = 0.0
            return None
        elapsed = min(elapsed, self._at_most)
        self._silent += elapsed
        for name in self._others:
            self._others[name] += elapsed
        self._observe(elapsed, goes_on)
        if self._still >= self._hang_after:
            return f"no heartbeat for {self._silent:.3g} s, in which its threads did nothing"
        if self._step:
            self._age += elapsed
            if self._age < self._step_timeout:
                return None
            return f"its step {self._step!r} did not end within {self._step_timeout:g} s (step_timeout)"
        if self._silent >= self._hang_after and not self._excused:
            return f"no heartbeat for {self._hang_after:g} s"
        if self._stuck + self._unmoved >= self._hang_after:
            return f"its admitting loop made no round for {self._hang_after:g} s"
        return None

    def _observe(self, elapsed: float, goes_on: Callable[[], bool]) -> None:
        """Note whether the process does something, as often as it should have sent a heartbeat."""
        self._unobserved += elapsed
        if self._unobserved >= self._at_most and (self._step or self._excused):
            self._still = 0.0 if goes_on() else self._still + self._unobserved
            self._unobserved = 0.0

    @property
    def _excused(self) -> bool:
        return any(age < self._step_timeout for age in self._others.values())

    @property
    def _unmoved(self) -> float:
        """Seconds since the last beat that count for the admitting loop, without those in which the GIL may be held."""
        return min(self._silent, self._at_most) if self._excused else self._silent
