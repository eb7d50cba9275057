"""The report of a replay."""

from dataclasses import dataclass, field

from callboard.multi_device.replay.errors import ReplayDiverged

__all__ = ["Divergence", "ReplayReport", "Step"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A point at which a replay differs from the recording.

    Attributes:
        actor: Path of the actor, or ``batches/<name>``.
        number: The input that it was handling; 0 before the first.
        sequence: Sequence of the record that was not matched.
        expected: The recorded event.
        got: The event of the replay.
    """

    actor: str
    number: int
    sequence: int
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.actor}, input {self.number} (record {self.sequence}): recorded {self.expected}; now {self.got}"


@dataclass(frozen=True, slots=True)
class Step:
    """One input that was given again.

    Attributes:
        sequence: Sequence of its record.
        actor, number, kind: The recorded values.
        message: The message, as the handler got it.
        outputs: Outputs before the next input, as texts.
        divergences: Differences from the recording.
    """

    sequence: int
    actor: str
    number: int
    kind: str
    message: object
    outputs: tuple[str, ...]
    divergences: tuple[Divergence, ...]


@dataclass(slots=True)
class ReplayReport:
    """The findings of a replay.

    Attributes:
        inputs: Inputs that were given again.
        outputs: Outputs that were compared.
        divergences: Differences, in the order of the journal. Verifying stops at the first.
        skipped: Actors of the journal that were not built, with their inputs.
        environment: Versions that differ from those of the recording, as texts.
        gap: The reason why the replay ended before the journal did, "" if it did not.
    """

    inputs: int = 0
    outputs: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    environment: list[str] = field(default_factory=list)
    gap: str = ""

    @property
    def first(self) -> Divergence | None:
        """The first divergence."""
        return self.divergences[0] if self.divergences else None

    @property
    def same(self) -> bool:
        """True if everything replayed matches the recording."""
        return not self.divergences and not self.gap

    def check(self) -> None:
        """Raise if anything differed.

        Raises:
            ReplayDiverged: Its text names the first divergence, or the gap.
        """
        if self.divergences or self.gap:
            more = f" (and {len(self.divergences) - 1} more)" if len(self.divergences) > 1 else ""
            notes = "".join(f"; {text}" for text in self.environment)
            raise ReplayDiverged(f"{self.first or self.gap}{more}{notes}")
