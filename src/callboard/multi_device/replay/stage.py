"""The replay wrapper of an actor: its mailbox is fed from the journal, and its outputs are collected."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime.envelopes import Kill, Obituary, Poison, Tick, message_of
from callboard.actors._runtime.recording import InputKind, Tap, tap_of_caller
from callboard.actors.errors import MailboxFull
from callboard.actors.mailbox import UserLane
from callboard.multi_device.replay.codec import Codec, name_of
from callboard.multi_device.replay.errors import ReplayDiverged

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["LiveOutput", "ReplayLane", "ReplayTap", "Script"]

LiveOutput = tuple[str, str, str, bytes, Any]
"""Kind, target, class, fingerprint and the value itself."""


class Script:
    """Recorded answers to requests of actors other than messages.

    Attributes:
        values: Recalled values, by actor and name, in order.
        refused: Messages that found a full mailbox: actor, input, and which of its outputs.
        changed: Called when an actor did something.
    """

    def __init__(self, codec: Codec, changed: Callable[[], object]) -> None:
        self.codec = codec
        self.changed = changed
        self.values: dict[tuple[str, str], deque[bytes]] = {}
        self.refused: set[tuple[str, int, int]] = set()

    def recall(self, actor: str, name: str, as_type: Any) -> Any:
        """The next value of this name.

        Raises:
            ReplayDiverged: There is no further value.
        """
        known = self.values.get((actor, name))
        if not known:
            raise ReplayDiverged(f"{actor or 'the application'} asks for {name!r} more often than it was recorded")
        return self.codec.decode_as(as_type, known.popleft())


class ReplayTap(Tap):
    """Keeps the outputs of one actor.

    Attributes:
        busy: True if a message was given to it that it has not handled.
        outputs: Outputs that have not been compared yet, by input.
        finished: Inputs to which it has replied.
    """

    def __init__(self, path: str, cell: "Cell", script: Script) -> None:
        super().__init__(path, cell)
        self.busy = False
        self.outputs: dict[int, deque[LiveOutput]] = {}
        self.finished: set[int] = set()
        self.inbox: ReplayLane | None = None
        self._script = script
        self._made: dict[int, int] = {}

    def lane(self, lane: UserLane) -> UserLane:
        self.inbox = ReplayLane(self.path, self._script)
        return self.inbox

    def received(self, kind: InputKind, message: Any, detail: int) -> None:
        self._script.changed()

    def replied(self, number: int, value: Any) -> None:
        self._did(number, "reply", "", value)

    def failed(self, number: int, error: BaseException) -> None:
        self._did(number, "error", "", error)

    def sent(self, to: str, message: Any) -> None:
        self._did(self.count, "sent", to, message)

    def refused(self, to: str) -> None:
        self._did(self.count, "refused", to, None)

    def ended(self) -> None:
        self.busy = False
        self._script.changed()

    def recalled(self, name: str, make: Callable[[], Any], as_type: Any) -> Any:
        try:
            return self._script.recall(self.path, name, as_type)
        except ReplayDiverged as e:
            self._did(self.count, "recall", name, e)
            raise

    @property
    def next_refused(self) -> bool:
        """True if the message that was just sent found a full mailbox."""
        return (self.path, self.count, self._made.get(self.count, 0)) in self._script.refused

    def _did(self, number: int, kind: str, to: str, value: Any) -> None:
        name, data = self._script.codec.output(value)
        self.outputs.setdefault(number, deque()).append((kind, to, name, data, value))
        self._made[number] = self._made.get(number, 0) + 1
        if kind in ("reply", "error"):
            self.finished.add(number)
        self._script.changed()


class ReplayLane(UserLane):
    """A mailbox that holds back its messages: the replay decides which is handled next.

    Attributes:
        held: Messages that were sent and not handled yet.
    """

    __slots__ = ("_path", "_script", "held")

    def __init__(self, path: str, script: Script) -> None:
        self.capacity = None
        self.items: deque[Any] = deque()
        self.pop = self.items.popleft
        self.push = self._hold
        self.held: list[Any] = []
        self._path = path
        self._script = script

    def _hold(self, item: Any) -> None:
        tap = tap_of_caller()
        if isinstance(tap, ReplayTap):
            tap.sent(self._path, message_of(item))
            if tap.next_refused:
                tap.refused(self._path)
                raise MailboxFull(f"the mailbox of {self._path} was full")
        self.held.append(item)
        self._script.changed()

    def push_always(self, item: Any) -> None:
        if not isinstance(item, Tick):  # the journal determines when those are handled
            self.held.append(item)
            self._script.changed()

    def push_front(self, items: Iterable[Any]) -> None:
        self.held[:0] = items

    def give(self, item: Any) -> None:
        """Have this handled next."""
        self.items.append(item)

    def take(self, kind: str, name: str, data: bytes, loose: bool) -> Any:
        """The held item that is this record; None if there is none.

        Args:
            kind, name, data: Fields of the record.
            loose: One of the same class does, too.
        """
        fallback: int | None = None
        for index, item in enumerate(self.held):
            message = message_of(item)
            pill = kind in ("poison", "kill")
            if _kind_of(item) != _class_of_kind(kind) or not (pill or name_of(type(message)) == name):
                continue
            if pill or not data or self._same(message, data):
                return self.held.pop(index)
            if fallback is None:
                fallback = index
        return self.held.pop(fallback) if fallback is not None and (loose or kind == "watch") else None

    def _same(self, message: Any, data: bytes) -> bool:
        return self._script.codec.encode(message) == data


def _kind_of(item: Any) -> str:
    for cls, kind in ((Poison, "poison"), (Kill, "kill"), (Obituary, "watch")):
        if isinstance(item, cls):
            return kind
    return "message"


def _class_of_kind(kind: str) -> str:
    return kind if kind in ("poison", "kill", "watch") else "message"
