"""``CudaMember``: a rank of a world on a GPU: a communicator of NCCL and the thread that connects and ends it."""

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.backends.cuda.collective.nccl import BYTES, OPS, Comm, Nccl
from callboard.core.backend import Memory, Status
from callboard.core.errors import AccelError, LibraryError, WorldLost
from callboard.kernel.collective.library import JOINING, READY, Member

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.backends.cuda.stream import CudaStream

__all__ = ["CudaMember", "SetupResources"]

_log = logging.getLogger(__name__)

LOOK = 0.1
"""Seconds between two polls of a communicator."""
ABORT = 5.0
"""Seconds that a closing context waits for its communicators to be released."""
STUCK = 0.5
"""Seconds that an abort lets a call of another thread return by itself."""


class SetupResources(NamedTuple):
    """Stream and memory for connecting the pairs of ranks.

    Attributes:
        stream: Used by one member only: a member that cannot connect must not delay the next one.
        scratch: A byte to send, and one byte to receive for each rank.
    """

    stream: "CudaStream"
    scratch: Memory


class CudaMember(Member):
    """See :class:`Member`.

    Each has a thread of its own. It connects, because that waits for the other ranks. It asks NCCL for errors and finds
    hangs, which must work while the thread that serves the host is blocked; so it does not call the driver, whose lock
    that thread may hold, until a hang is likely. It aborts, which waits for the kernels.
    If a rank is lost while the pairs are connected, another thread aborts. Nothing interrupts NCCL before there is a
    communicator: then the thread may stay as long as the process, without blocking later worlds.

    Args:
        world, rank, size: See :class:`Member`.
        nccl: The library.
        device: The device; its context is current.
        stream: The stream that parts are enqueued on.
        setup: Setup resources of this member; the library takes them back when :attr:`ended`.

    Attributes:
        comm: The communicator; None if there is none.
        using: Held while a part is enqueued.
        ended: The thread has ended, and with it the communicator.
    """

    def __init__(
        self,
        world: int,
        rank: int,
        size: int,
        nccl: Nccl,
        device: "CudaDevice",
        stream: "CudaStream",
        setup: SetupResources,
    ) -> None:
        super().__init__(world, rank, size)
        self.setup = setup
        self.comm: Comm = None
        self.using = threading.Lock()
        self.ended = True
        self._nccl = nccl
        self._device = device
        self._stream = stream
        self._ready = False
        self._leave = threading.Event()
        self._giving = threading.Lock()
        self._thread: threading.Thread | None = None
        self._enqueued = 0
        self._passed = 0

    def offer(self) -> bytes:
        return self._nccl.unique_id() if self.rank == 0 else b""

    def join(self, offers: tuple[bytes, ...], timeout: float) -> None:
        if not self.ended:
            raise LibraryError(f"world {self.world} has been joined", "collective")
        self.ended = False
        self._thread = threading.Thread(
            target=self._live, args=(offers[0], timeout), name=f"callboard-nccl-{self.rank}", daemon=True
        )
        self._thread.start()

    def state(self) -> str:
        return str(self.lost) if self.lost is not None else READY if self._ready else JOINING

    def leave(self) -> None:
        self._leave.set()
        if self._thread is not None and not self._ready and threading.current_thread() is not self._thread:
            threading.Thread(
                target=self._abort_connecting, args=(self._thread,), name="callboard-nccl-abort", daemon=True
            ).start()

    def wait_end(self) -> None:
        """Wait until its thread has given the communicator back, at most for :data:`ABORT`."""
        if self._thread is not None:
            self._thread.join(ABORT)

    def enqueued(self) -> "Ran":
        """Count a part that was enqueued and return its status."""
        self._enqueued += 1
        return Ran(self, self._enqueued)

    def passed(self, number: int) -> None:
        """The stream has passed a part."""
        self._passed = max(self._passed, number)

    # -- its thread ----------------------------------------------------------------------------------------------------

    def _live(self, unique_id: bytes, timeout: float) -> None:
        try:
            self._device.use()
            self.comm = self._nccl.connect(self.size, self.rank, unique_id)
            self._connect_pairs()
            self._ready = True
            self._watch(timeout)
        except Exception as e:  # from NCCL or the driver: the rank is lost, which the application notices when it polls
            self.end(WorldLost(f"rank {self.rank}: {type(e).__name__}: {e}", self.rank))
        finally:
            self._abort()

    def _connect_pairs(self) -> None:
        """Exchange a byte with each rank, on a stream of its own: their first use connects the pairs."""
        library, comm, peers = self._nccl.library, self.comm, range(self.size)
        ones, stream = self.setup.scratch.address, self.setup.stream.native
        checked = self._nccl.checked
        checked("ncclAllReduce", library.all_reduce, ones, ones, 1, BYTES, OPS["sum"], comm, stream)
        checked("ncclGroupStart", library.group_start)
        try:
            for peer in peers:
                checked("ncclSend", library.send, ones, 1, BYTES, peer, comm, stream)
                checked("ncclRecv", library.recv, ones + 1 + peer, 1, BYTES, peer, comm, stream)
        finally:
            checked("ncclGroupEnd", library.group_end)
        while not self.setup.stream.query():
            if self._leave.wait(0.001):
                return

    def _watch(self, timeout: float) -> None:
        passed, since = -1, time.monotonic()
        while not self._leave.wait(LOOK):
            why = self._nccl.failed(self.comm)
            if why:
                self.end(WorldLost(f"rank {self.rank}: NCCL reports {why}", self.rank))
                return
            if self._passed != passed or self._passed == self._enqueued:
                passed, since = self._passed, time.monotonic()
            elif time.monotonic() - since > timeout:
                if self._idle():  # the serving thread has not looked
                    since = time.monotonic()
                    continue
                self.end(WorldLost(f"rank {self.rank} waited {timeout:g} s for the others"))
                return

    def _idle(self) -> bool:
        try:
            return self._stream.query()
        except AccelError:  # of the context, which the serving thread finds, too
            return True

    def _abort(self) -> None:
        held = self.using.acquire(timeout=STUCK)
        try:
            self._abort_once()
            self.setup.stream.synchronize()
        except Exception as e:  # of a communicator that goes
            _log.warning("rank %d of world %d could not be aborted: %s", self.rank, self.world, e)
        finally:
            self.ended = True
            if held:
                self.using.release()

    def _abort_connecting(self, thread: threading.Thread) -> None:
        """Abort the call that blocks its thread by waiting for a lost rank."""
        thread.join(STUCK)
        if thread.is_alive():
            try:
                self._device.use()
                self._abort_once()
            except Exception as e:  # likewise
                _log.warning("rank %d of world %d could not be aborted: %s", self.rank, self.world, e)

    def _abort_once(self) -> None:
        with self._giving:
            comm, self.comm = self.comm, None
        if comm is not None:
            self._nccl.abort(comm)


class Ran(Status):
    """Status of a part, which fails if the world had ended when the stream passed it."""

    __slots__ = ("_member", "_number")

    def __init__(self, member: CudaMember, number: int) -> None:
        self._member = member
        self._number = number

    def check(self, outcome: bytes) -> None:
        self._member.passed(self._number)
        self._member.check()

    def answer(self) -> Any:
        raise NotImplementedError("a part has no answer")
