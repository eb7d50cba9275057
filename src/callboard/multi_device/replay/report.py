"""The report of a replay."""

from dataclasses import dataclass, field

from callboard.multi_device.replay.errors import ReplayDiverged

__all__ = ["Divergence", "ReplayReport", "Step"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A point at which a replay differs from the recording.

    Attributes:
        actor: Path of the actor, ``batches/<name>``, or ``devices/<n>``.
        number: The input that it was handling; 0 before the first. Of a device, the number of the op.
        sequence: Sequence of the record that was not matched.
        expected: The recorded event.
        got: The event of the replay.
        op: Of a device, ``library.op``; ``placement`` of a choice.
        unit: What ``number`` counts.
    """

    actor: str
    number: int
    sequence: int
    expected: str
    got: str
    op: str = ""
    unit: str = "input"

    def __str__(self) -> str:
        at = f"{self.actor}, {self.unit} {self.number}{self.op and ' '}{self.op} (record {self.sequence})"
        return f"{at}: recorded {self.expected}; now {self.got}"


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
        device_ops, device_results: Ops of devices, and outputs and answers of theirs, that were compared.
        by_hash: Arrays above ``max_array_bytes``, of which only hash, dtype and shape were compared, and are equal.
        unproven: Those whose hashes differ, and whose elements would have to be compared with a tolerance, because
            another backend computed them.
        unread: Outputs of ops that were not read back, and so not compared.
        losses: Losses of contexts. Those of the recording are not repeated.
    """

    inputs: int = 0
    outputs: int = 0
    divergences: list[Divergence] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    environment: list[str] = field(default_factory=list)
    gap: str = ""
    device_ops: int = 0
    device_results: int = 0
    by_hash: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    unread: int = 0
    losses: list[str] = field(default_factory=list)

    @property
    def first(self) -> Divergence | None:
        """The first divergence."""
        return self.divergences[0] if self.divergences else None

    @property
    def same(self) -> bool:
        """True if everything compared matches the recording."""
        return not self.divergences and not self.gap and not self.unproven

    def check(self) -> None:
        """Raise if anything differed.

        Raises:
            ReplayDiverged: Its text names the first divergence, the gap, or an array that could not be compared.
        """
        if not self.same:
            more = f" (and {len(self.divergences) - 1} more)" if len(self.divergences) > 1 else ""
            notes = "".join(f"; {text}" for text in self.environment)
            unproven = self.unproven and f"raise max_array_bytes to compare the elements of {self.unproven[0]}"
            raise ReplayDiverged(f"{self.first or self.gap or unproven}{more}{notes}")
