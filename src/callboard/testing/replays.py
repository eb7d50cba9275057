"""Launches recorded in graphs: each is replayed several times, on other data each time, and compared with itself."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from callboard.core.backend import AccelDevice, AccelStream, Status
from callboard.core.dtype import as_dtype
from callboard.core.errors import AccelError
from callboard.core.operand import Operand
from callboard.testing.tolerances import ROUNDOFF

__all__ = ["Access", "Used", "replayed"]

FACTORS = (0.5, 2.0, 1.0)
"""Factors of the floating-point operands, by replay. Powers of two preserve the properties of a matrix (definite,
singular, sorted); the last replay has the caller's own numbers."""

SAME = 0.25
"""Two results differ by less than this part of the largest element, or they are not of the same operands: those of two
replays differ by a factor of 2 at least. Sums in f16 and bf16 that are larger than their result come close to it."""

Array = np.ndarray[Any, Any]
Launch = Callable[[AccelStream], Status | None]


class Used(NamedTuple):
    """An array that a launch uses.

    Attributes:
        name: Name of the operand.
        array: The operand.
        block: Memory of the array, which other arrays may share.
        reads, writes: Access of the op to the array.
    """

    name: str
    array: Operand
    block: Any
    reads: bool
    writes: bool


class Access(NamedTuple):
    """Reads and writes contents outside any recording.

    Attributes:
        get: An array's elements.
        get_bytes, put_bytes: All bytes of a block.
    """

    get: Callable[[Any], Array]
    get_bytes: Callable[[Any], Array]
    put_bytes: Callable[[Any, Array], None]


class Ended(NamedTuple):
    """The outcome of a launch or a replay."""

    error: AccelError | None
    written: dict[str, Array]


def replayed(
    what: str,
    device: AccelDevice,
    stream: AccelStream,
    recorder: AccelStream,
    launch: Launch,
    access: Access,
    used: Sequence[Used],
) -> None:
    """Record a launch, replay it for each of :data:`FACTORS`, and compare each replay with the launch on ``stream``.

    Args:
        what: The op, for messages.
        device: The device.
        stream: The library's own.
        recorder: Another one, on which the launch is recorded and replayed.
        launch: Enqueues the op on the stream that it is given.
        access: Reads and writes the arrays.
        used: All arrays that the launch names.

    Raises:
        AccelError: The last replay's own failure.
        AssertionError: A replay does something else than the launch.
    """
    statuses: list[Status | None] = []
    graph = recorder.capture(lambda: statuses.append(launch(recorder)))
    blocks = {id(u.block): u.block for u in used}

    def run(data: dict[int, Array], enqueue: Callable[[], Status | None], on: AccelStream) -> Ended:
        for key, block in blocks.items():
            access.put_bytes(block, data[key])
        error = _ended(device, on, enqueue)
        return Ended(error, {u.name: access.get(u.array) for u in used if u.writes})

    def replay() -> Status | None:
        graph.launch(recorder)
        return statuses[0]

    last: AccelError | None = None
    try:
        before = {key: access.get_bytes(block) for key, block in blocks.items()}
        for factor in FACTORS:
            data = _scaled(before, used, factor)
            expected = run(data, lambda: launch(stream), stream)
            ended = run(data, replay, recorder)
            _compare(f"{what}, operands times {factor}", ended, expected)
            last = ended.error
    finally:
        graph.close()
    if last is not None:
        raise last


def _ended(device: AccelDevice, stream: AccelStream, enqueue: Callable[[], Status | None]) -> AccelError | None:
    """Enqueue, wait, and look how it went."""
    status = enqueue()
    copied = device.read_back(stream, status.address, status.nbytes) if status is not None and status.nbytes else None
    stream.synchronize()
    try:
        if status is not None:
            status.check(b"" if copied is None else copied.take())
    except AccelError as e:
        return e
    return None


def _scaled(before: dict[int, Array], used: Iterable[Used], factor: float) -> dict[int, Array]:
    """The blocks' bytes, with floating-point operands that are read multiplied by a power of two."""
    after = {key: octets.copy() for key, octets in before.items()}
    if factor == 1:
        return after  # multiplied, a NaN may have other bits
    dtypes: dict[int, set[Any]] = {}
    for u in used:
        dtypes.setdefault(id(u.block), set()).add(u.array.layout.dtype)
    for u in used:
        dtype = u.array.layout.dtype
        if u.reads and (dtype.is_float or dtype.is_complex) and dtypes.pop(id(u.block), None) == {dtype}:
            octets = after[id(u.block)]
            whole = octets[: octets.size // dtype.itemsize * dtype.itemsize].view(dtype.np)
            with np.errstate(all="ignore"):
                whole *= dtype.np.type(factor)
    return after


def _compare(what: str, ended: Ended, expected: Ended) -> None:
    if repr(ended.error) != repr(expected.error):
        raise AssertionError(f"{what}: the replay ended with {ended.error!r}, the launch with {expected.error!r}")
    if ended.error is None:
        for name, want in expected.written.items():
            got = ended.written[name]
            if got.tobytes() != want.tobytes() and not _close(got, want):
                raise AssertionError(f"{what}: {name} is {got!r} after the replay and {want!r} after the launch")


def _close(got: Array, want: Array) -> bool:
    """True if they differ by rounding only: sums may be taken in another order."""
    roundoff = ROUNDOFF.get(as_dtype(want.dtype).name)
    if roundoff is None:
        return False
    wide = np.complex128 if np.iscomplexobj(want) else np.float64
    got, want = got.astype(wide), want.astype(wide)
    finite = np.isfinite(want)
    if not np.array_equal(np.isfinite(got), finite):
        return False
    largest = np.abs(want[finite]).max(initial=0.0)
    bound = min(64 * roundoff.unit + 1024 * roundoff.accumulator, SAME) * largest
    return bool((np.abs(got - want)[finite] <= bound).all())
