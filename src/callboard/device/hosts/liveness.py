"""Whether a host hangs: a pure decider, told of heartbeats and of time that passed."""

__all__ = ["Liveness"]


class Liveness:
    """Judges one host.

    A host is alive when its control thread beats *and* its admitting loop either waits for messages or makes rounds. An
    announced step (an import may hold the GIL for minutes) and a paused watch excuse any silence.

    Args:
        hang_after: Seconds of silence that count as a hang.
        at_most: Seconds that one :meth:`pass_time` may add. The watcher calls it at least that often, so a longer pause
            means that this process itself did not run (a debugger, a frozen container), and that time is nobody's
            silence.

    Attributes:
        paused: Set by the application around a long step that it knows of.
    """

    __slots__ = ("_at_most", "_hang_after", "_rounds", "_silent", "_step", "_stuck", "paused")

    def __init__(self, hang_after: float, at_most: float) -> None:
        self._hang_after = hang_after
        self._at_most = at_most
        self._silent = 0.0
        self._stuck = 0.0
        self._rounds = -1
        self._step = ""
        self.paused = False

    def beat(self, rounds: int, waiting: bool, step: str) -> None:
        """A heartbeat came (fields as in :class:`~callboard.device.hosts.control.Beat`)."""
        self._silent = 0.0
        if waiting or step or rounds != self._rounds:
            self._stuck = 0.0
        self._rounds = rounds
        self._step = step

    def pass_time(self, elapsed: float) -> str | None:
        """Time has passed since the last call.

        Returns:
            Why the host counts as hung, None while it does not.
        """
        if self.paused or self._step:
            self._silent = self._stuck = 0.0
            return None
        elapsed = min(elapsed, self._at_most)
        self._silent += elapsed
        self._stuck += elapsed
        if self._silent >= self._hang_after:
            return f"no heartbeat for {self._hang_after:g} s"
        if self._stuck >= self._hang_after:
            return f"its admitting loop made no round for {self._hang_after:g} s"
        return None
