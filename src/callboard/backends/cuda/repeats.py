"""Repeated launches with the same arguments: recorded once, and enqueued as a graph from then on.

A call of a vendor's library costs microseconds of its own (heuristics, checks, a driver launch), whatever its
arguments; a graph of its work costs one of them. Loops whose arrays stay in place (``out=``, iterations that exchange
two buffers) repeat calls with the same addresses and numbers.

When to record is the ski rental problem (Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988): a launch
has been repeated so often that recording it costs no more than the time lost so far by not recording it. At worst,
whatever is called, twice the minimum time is spent. But nothing is recorded while the device still has work: it then
does not wait for the host, so a graph would gain nothing, and making one beside work in flight costs the device a
pause.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.graph import CudaGraph
from callboard.backends.cuda.stream import CudaStream
from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaEvent

__all__ = ["Repeats"]

WORTH = 4
"""Launches with the same arguments before they are recorded: recording takes as long (20 µs on an H200) as this number
of graphs saves (6 µs each)."""
MOST = 256
"""Recordings of one library that are kept; each takes 0.1 MiB of the device."""
SEEN = 1024
"""Arguments of one plan whose launches are counted."""

Run = Callable[..., None]
Pack = Callable[..., bytes]
Pick = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class Recording:
    """A launch that is enqueued as a graph.

    Attributes:
        again: Enqueues it.
        used: Since it was last considered for being dropped.
    """

    __slots__ = ("again", "graph", "used")

    def __init__(self, graph: CudaGraph) -> None:
        self.graph = graph
        self.again = graph.launch
        self.used = True


class Repeats:
    """The recordings of one library.

    They are made on a stream of their own, in a context of its own, so that other threads need not pause meanwhile.
    """

    def __init__(self, device: "CudaDevice") -> None:
        self._device = device
        self._stream: CudaStream | None = None
        self._kept: OrderedDict[tuple[int, bytes], tuple[Recording, dict[bytes, Recording]]] = OrderedDict()
        self._leaving: list[tuple[CudaEvent, CudaStream, CudaGraph]] = []

    def of(self, run: Run) -> Run:
        """Return ``run(stream, *arguments)`` as a launch that records repetitions.

        Its work must depend on these arguments alone.

        It has a ``close``, as plans may have, which also closes ``run`` if that has one, and must be called on one
        stream.
        """
        pack: Pack = _no_bits
        pick: Pick | None = None
        close_run: Callable[[], None] | None = getattr(run, "close", None)
        seen: dict[bytes, int] = {}
        mine: dict[bytes, Recording] = {}

        def launch(stream: CudaStream, *arguments: Any) -> None:
            nonlocal pack, pick
            if stream.recording:  # by another recording
                run(stream, *arguments)
                return
            if pick is None:
                pack, pick = _bits_of(arguments)
            key = pack(*pick(arguments))
            recording = mine.get(key)
            if recording is not None:
                recording.used = True
                recording.again(stream)
                return
            count = seen.get(key, 0) + 1
            if not key or count < WORTH or not stream.query():
                if len(seen) >= SEEN:
                    seen.clear()
                seen[key] = count
                run(stream, *arguments)
                return
            seen.pop(key, None)
            graph = self._launched(stream, run, arguments)
            if graph is None:
                pack, pick = _no_bits, _none_of
                run(stream, *arguments)
            else:
                mine[key] = Recording(graph)
                self._keep(stream, id(mine), key, mine)

        def close() -> None:
            for key, recording in mine.items():
                del self._kept[id(mine), key]
                recording.graph.close()
            mine.clear()
            if close_run is not None:
                close_run()

        launch.close = close  # type: ignore[attr-defined]
        return launch

    def close(self) -> None:
        """Release everything; all work is done."""
        for recording, mine in self._kept.values():
            recording.graph.close()
            mine.clear()
        self._kept.clear()
        for _, _, graph in self._leaving:
            graph.close()
        self._leaving.clear()
        if self._stream is not None:
            self._stream.close()

    def _launched(self, stream: CudaStream, run: Run, arguments: tuple[Any, ...]) -> CudaGraph | None:
        """The launch as a graph, enqueued; None if it cannot be recorded or finds no memory."""
        graph = None
        try:
            own = self._stream = self._stream or self._device.recorder()
            graph = own.capture(lambda: run(own, *arguments))
            graph.launch(stream)
        except (ContextPoisoned, Unrecoverable):
            raise
        except AccelError:
            if graph is not None:
                graph.close()
            return None
        return graph

    def _keep(self, stream: CudaStream, plan: int, key: bytes, mine: dict[bytes, Recording]) -> None:
        """Store a recording; when there are too many, drop the oldest that has not been used since the last check."""
        self._kept[plan, key] = mine[key], mine
        while len(self._kept) > MOST:
            (old_plan, old_key), (recording, plans) = self._kept.popitem(last=False)
            if recording.used:
                recording.used = False
                self._kept[old_plan, old_key] = recording, plans
                continue
            del plans[old_key]
            self._leaving.append((stream.record(), stream, recording.graph))
        self._leaving = [leaving for leaving in self._leaving if not _left(*leaving)]


def _left(event: "CudaEvent", stream: CudaStream, graph: CudaGraph) -> bool:
    """True if a dropped recording was closed; the device may still be executing it."""
    if not event.query():
        return False
    stream.recycle(event)
    graph.close()
    return True


def _bits_of(arguments: tuple[Any, ...]) -> tuple[Pack, Pick]:
    """Functions that select the distinguishing parts of arguments of these types, and their bits.

    No bits if there is more to them than addresses and reals. The types are those of a plan, the same at every
    launch.
    """
    kinds = {int: "Q", float: "d"}
    present = [i for i, value in enumerate(arguments) if value is not None]
    if len(present) < 2 or any(type(arguments[i]) not in kinds for i in present):
        return _no_bits, _none_of
    return struct.Struct("=" + "".join(kinds[type(arguments[i])] for i in present)).pack, itemgetter(*present)


def _no_bits() -> bytes:
    return b""


def _none_of(_: tuple[Any, ...]) -> tuple[Any, ...]:
    return ()
