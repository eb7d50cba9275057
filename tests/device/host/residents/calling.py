"""A context with two resident actors, whose calls the test runs and ends itself."""

from tests.device.host.context.hosting import Buffer, Hosted

from callboard.device.host.context.admission.attached import Attached
from callboard.device.host.context.blocks import Block
from callboard.device.host.context.parking import Holds
from callboard.device.host.context.timelines import Timeline
from callboard.device.host.residents.admission import CallAdmission
from callboard.device.host.residents.endings import CallEndings
from callboard.device.host.residents.item import EndedCall, Item
from callboard.device.host.residents.operands import Adopted
from callboard.device.protocol.messages import ActorCall
from callboard.device.protocol.residents.exceptions import described


class Actor:
    """An actor as the admitting thread has it; the test runs its calls."""

    stopping = False

    def __init__(self, id: int, timeline: Timeline) -> None:
        self.id = id
        self.name = f"actor {id}"
        self.timeline = timeline
        self.holds = Holds()


class Calls(Hosted):
    """A context with two actors."""

    def __init__(self) -> None:
        super().__init__()
        self.actors = {n: Actor(n, self.context.streams.acquire(f"actor {n}")) for n in (1, 2)}
        attached = Attached(self.context.device, self.context.admission.arenas)
        self.admission = CallAdmission(self.context, self.actors, {}, False, lambda call: None, attached)  # type: ignore[arg-type]
        self.endings = CallEndings(self.context, self.admission.running)

    def called(self, buffer: Buffer, *, writes: bool = True, actor: int = 1) -> Item:
        """Admit a call that uses an array, and that nothing parks."""
        item = self.admission.running[self.call_of(buffer, writes=writes, actor=actor)][1]
        assert item.holds
        return item

    def call_of(self, buffer: Buffer, *, writes: bool, actor: int) -> int:
        """Call a method with an array; the call's id."""
        number = self._id()
        place, layout = [buffer.id, buffer.offset], buffer.layout.raw
        self.admission.call(ActorCall(number, actor, b"", place, [layout], [writes], []))
        return number

    def run(self, item: Item) -> None:
        """The actor's thread has run the call; only behind the users of its arrays may it touch them."""
        item.began = item.ended = 1.0
        if item.start is not None:
            item.start.synchronize()

    def end(self, item: Item, *lent: Adopted, error: Exception | None = None) -> None:
        actor = self.admission.running[item.message.id][0]
        if error is None:
            self.endings.end(EndedCall(actor, item, b"", list(lent)))
        else:
            self.endings.fail(EndedCall(actor, item, b"", [], described(item.message.id, error)))

    def block(self, buffer: Buffer) -> Block:
        return self.context.admission.buffers[buffer.id]

    def timeline(self, library: str) -> Timeline:
        return self.context.libraries.actors[library].timeline
