"""A context without an application: messages are handed to it, and what it says is kept."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.device.steps import StepsBackend

from callboard.core.layout import Layout, layout_of
from callboard.core.op import Op, info_of, outputs_of
from callboard.core.operand import Operand
from callboard.device.config import HostConfig
from callboard.device.host.channel import Channel
from callboard.device.host.context.actor import ContextActor
from callboard.device.protocol.messages import Call, Calls, Completions, FailureMessage, Flush

PATIENCE = 20.0

_never = threading.Event()


class Kept(Channel):
    """Keeps what the host says."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def receive(self, timeout: float | None) -> Sequence[Any]:
        assert timeout is not None, "messages are handed over here"
        _never.wait(timeout)  # a context that is being closed looks whether it is given up
        return ()

    def send(self, message: Any) -> None:
        self.said.append(message)

    def wake(self) -> None: ...
    def map_arena(self, arena: int, nbytes: int, address: int) -> int:
        return address

    def unmap_arena(self, arena: int) -> None: ...
    def busy(self, step: str | None) -> None: ...
    def beat(self) -> None: ...
    def leave(self, code: int) -> None:
        raise SystemExit(code)


class Buffer(Operand):
    """An array of the context, by its id."""

    def __init__(self, id: int, layout: Layout, offset: int = 0) -> None:
        self.id = id
        self.layout = layout
        self.offset = offset


class Hosted:
    """A context on the CPU with the libraries of :mod:`tests.device.steps`, served by the calling thread."""

    def __init__(self, backend: Any = None, **config: Any) -> None:
        self.channel = Kept()
        backend = backend or StepsBackend()
        self.context = ContextActor(self.channel, backend, backend.devices()[0], HostConfig(**config))
        self.done: list[int] = []
        self.values: dict[int, Any] = {}
        self.failed: dict[int, FailureMessage] = {}
        self._ids = 0

    def call(self, op: Op[Any, Any], **options: Any) -> tuple[int, list[Buffer]]:
        """Admit an op; its id, and the buffers that it makes."""
        call, made = self.outputs(op, **options)
        self.context.receive(Calls([call]))
        return call.id, made

    def outputs(self, op: Op[Any, Any], **options: Any) -> tuple[Call, list[Buffer]]:
        """The op as the application would send it."""
        signature, operands, numbers = info_of(type(op)).split(op)
        outputs = outputs_of(op)
        made = [Buffer(self._id(), outputs[name]) for name in outputs if getattr(op, name) is None]
        places = [n for o in operands for n in (o.id, o.offset)]
        return Call(self._id(), signature, places, numbers, [b.id for b in made], **options), made

    def free(self, *buffers: Buffer) -> None:
        self.context.receive(Calls([Call(0, b"", [], [], [b.id for b in buffers])]))

    def finish(self, until: Callable[[], bool] | None = None) -> None:
        """Go round until nothing is in flight, or until something holds."""
        deadline = time.monotonic() + PATIENCE
        while True:
            flying = self.context.advance()
            self.context.report()
            self.take()
            if until() if until is not None else not flying:
                return
            assert time.monotonic() < deadline, "ops are still in flight"

    def take(self) -> None:
        for message in self.channel.said:
            if type(message) is Completions:
                self.done += message.done
                self.values.update(message.values)
                causes = {cause.id: cause for cause in message.causes}
                self.failed.update({op: causes[root] for op, root in message.failed})
        self.channel.said = [m for m in self.channel.said if type(m) is not Completions]

    @property
    def flushes(self) -> int:
        return sum(type(m) is Flush for m in self.channel.said)

    def array(self, buffer: Buffer) -> np.ndarray:
        """What the buffer holds now."""
        from callboard.backends.cpu.views import array_at

        block = self.context.admission.buffers[buffer.id]
        return array_at(block.address + buffer.offset, buffer.layout).copy()

    def close(self) -> None:
        self.context.close()

    def _id(self) -> int:
        self._ids += 1
        return self._ids


def vector(n: int = 4) -> Layout:
    from callboard.core.dtype import DTYPES

    return layout_of(DTYPES["f32"], (n,))
