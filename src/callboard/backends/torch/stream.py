"""Streams of accelerators: a worker thread each, which enqueues on a stream of PyTorch. Run on CUDA alone."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from callboard.backends.torch.vendor import torch
from callboard.core.backend import AccelEvent, AccelStream
from callboard.core.backend.workers import WorkerEvent, WorkerStream

if TYPE_CHECKING:
    from callboard.backends.torch.device import TorchDevice

__all__ = ["AcceleratorStream"]


class AcceleratorEvent(WorkerEvent):
    """Reached when the worker has enqueued the work before it, and the device has done that work."""

    __slots__ = ("point",)

    def __init__(self, stream: "AcceleratorStream") -> None:
        super().__init__(stream)
        self.point: Any = None

    def query(self) -> bool:
        return super().query() and (self.point is None or self.point.query())

    def synchronize(self) -> None:
        super().synchronize()
        if self.point is not None:
            self.point.synchronize()


class AcceleratorStream(WorkerStream):
    """The worker calls PyTorch, whose calls return before the work is done; it alone waits for results on the host.

    Where PyTorch has no streams of its own (Metal), the worker waits for the device at each event.
    """

    def __init__(self, id: int, device: "TorchDevice") -> None:
        self._device = device
        try:
            self._queue: Any = torch.Stream(device=device.torch_device)
        except RuntimeError:
            self._queue = None
        super().__init__(id)

    def entered(self) -> AbstractContextManager[object]:
        return self._current()

    @contextmanager
    def _current(self) -> Iterator[None]:
        self._device.use()
        with super().entered():
            if self._queue is None:
                yield
            else:
                with self._queue:
                    yield

    @property
    def waited(self) -> AccelStream:
        return self  # another thread would enqueue on another stream of PyTorch

    def record(self) -> AcceleratorEvent:
        event = AcceleratorEvent(self)
        self.submit(self._reach, event)
        return event

    def query(self) -> bool:
        return super().query() and (self._queue is None or self._queue.query())

    def wait(self, event: AccelEvent) -> None:
        if not isinstance(event, AcceleratorEvent):
            raise TypeError(f"event is {type(event).__name__}; a stream of PyTorch waits for events of such streams")
        self.submit(self._follow, event)

    def signal(self, semaphore: int) -> bool:
        self.submit(self._finish)
        return super().signal(semaphore)

    def _follow(self, event: AcceleratorEvent) -> None:
        event.block()
        if event.point is not None:
            self._queue.wait_event(event.point)

    def _finish(self) -> None:
        if self._queue is None:
            torch.accelerator.synchronize()
        else:
            self._queue.synchronize()

    def _reach(self, event: WorkerEvent) -> None:
        assert isinstance(event, AcceleratorEvent)
        if self._queue is None:
            self._finish()
        else:
            event.point = self._queue.record_event()
        super()._reach(event)
