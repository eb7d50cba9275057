"""``Recorded``: a mapped graph that is recorded once for each set of input shapes, and replayed."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from callboard.core.dtype import as_dtype
from callboard.core.errors import AccelError, BudgetSpent, GpuRefStale, ShapeError, UnsupportedOp
from callboard.core.layout import layout_of
from callboard.core.operand import Operand
from callboard.kernel.engine.inputs.budget import Walk
from callboard.kernel.engine.mapped.graph import Mapped, stays_on_host
from callboard.kernel.engine.mapped.instances import Instance
from callboard.kernel.memory import Copy
from callboard.kernel.recording import recorder

__all__ = ["MOST_RECORDINGS", "Recorded"]

MOST_RECORDINGS = 16
"""Sets of shapes whose recordings are kept; those used least recently give way."""
MOST_SEEN = 1024
MOST_PAUSES = 4096
"""Nodes, and turns of loops, of an execution that is recorded."""


class _Last(NamedTuple):
    """A replay whose inputs were refs.

    Attributes:
        key: What its recording is kept by.
        named: The refs, by the names of the inputs.
        resident: The plan's arrays on the device.
        instance: The recording.
        inputs: The refs by the recording's names.
    """

    key: Any
    named: dict[str, Any]
    resident: Any
    instance: Instance
    inputs: dict[str, Any]


class Recorded:
    """Executes a graph by recordings of its ops.

    The first execution with a set of shapes runs op by op, which puts constants on the device; the second is recorded;
    later ones are replays. What cannot be recorded always runs op by op.

    The caller has the results as a recording has written them. While they are in use, other executions with these
    shapes replay a second recording, and copy its results.

    Args:
        runner: The graph.
        record: ``dev.record`` of the plan's device.
    """

    def __init__(self, runner: Mapped, record: Callable[..., Any]) -> None:
        self._runner = runner
        self._record = record
        self._lock = threading.Lock()
        self._resident: Any = None
        self._seen: dict[Any, bool] = {}
        """False: not yet recorded; True: it cannot be."""
        self._last: _Last | None = None
        self._recordings: OrderedDict[Any, list[Instance]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._recordings)

    def repeated(self, named: Mapping[str, Any], resident: Any) -> list[Any] | None:
        """The results of a replay, if the refs are those of the last one; None if not, or its results are in use.

        Args:
            named: What was given for the inputs, by their names.
            resident: The plan's arrays on the device.
        """
        last = self._last
        if last is None or last.resident is not resident or len(named) != len(last.named) or recorder.get() is not None:
            return None
        for name, ref in last.named.items():
            if named.get(name) is not ref:
                return None
        with self._lock:
            return last.instance.lend(last.inputs) if _lends(last.instance) else None

    def again(self, plan: Any, named: Mapping[str, Any], given: Sequence[Any], resident: Any) -> list[Any] | None:
        """The results of a replay; None if there is no recording for these inputs, or its results are in use.

        Args:
            plan: The plan.
            named: As of :meth:`repeated`.
            given: The same in the plan's order.
            resident: The plan's arrays on the device.
        """
        if recorder.get() is not None or resident is not self._resident:
            return None
        key = _key(given)
        found = self._recordings.get(key)
        if found is None or not _lends(found[0]):
            return None
        self._use(key)
        arrays = _on_device(plan, given)
        inputs = {f"x{at}": each for at, each in enumerate(arrays) if isinstance(each, Operand)}
        with self._lock:
            outs = found[0].lend(inputs) if _lends(found[0]) else None
        refs = len(inputs) == len(given) and all(a is b for a, b in zip(arrays, given, strict=True))
        self._last = _Last(key, dict(named), resident, found[0], inputs) if refs else None
        return outs

    def run(self, submit: Any, plan: Any, given: Sequence[Any], resident: Any) -> Walk[list[Any]]:
        """Execute it; see :meth:`Mapped.run <callboard.kernel.engine.mapped.graph.Mapped.run>`."""
        if recorder.get() is not None:  # the caller's own recording takes the ops
            return (yield from self._runner.run(submit, plan, given, resident))
        if resident is not self._resident:  # other weights, or arrays of another generation
            self._resident, self._last = resident, None
            self._recordings.clear()
            self._seen.clear()
        arrays = _on_device(plan, given)
        key = _key(arrays)
        inputs = {f"x{at}": each for at, each in enumerate(arrays) if isinstance(each, Operand)}
        found = self._recordings.get(key)
        if found is None:
            first = yield from self._recorded(key, submit, plan, arrays, resident, inputs)
            if first is None:
                return (yield from self._runner.run(submit, plan, arrays, resident))
            found = [first]
            if resident is self._resident:  # not replaced at a pause
                self._recordings[key] = found
            if self._last is not None:
                self._use(self._last.key)
            while len(self._recordings) > MOST_RECORDINGS:
                self._recordings.popitem(last=False)
        else:
            self._use(key)
        with self._lock:
            if _lends(found[0]):
                return found[0].lend(inputs)
        if found[0].lends and len(found) == 1:
            second = yield from self._recorded(key, submit, plan, arrays, resident, inputs)
            if second is None:
                return (yield from self._runner.run(submit, plan, arrays, resident))
            found.append(second)
        with self._lock:  # each replay writes the recording's own memory again, and other threads may call
            return [submit(Copy(src=out)) for out in found[-1].replay(inputs)]

    def _use(self, key: Any) -> None:
        """Note that a recording was used last, if it is still kept."""
        with contextlib.suppress(KeyError):  # another thread may have replaced the weights
            self._recordings.move_to_end(key)

    def _recorded(
        self, key: Any, submit: Any, plan: Any, arrays: Sequence[Any], resident: Any, inputs: dict[str, Any]
    ) -> Walk[Instance | None]:
        """A new recording, or None if there is none (yet)."""
        if key not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[key] = False
            return None
        if self._seen[key] or len({id(each) for each in inputs.values()}) < len(inputs):
            return None
        recording = self._record(**inputs)

        def put(array: Any, **options: Any) -> Any:
            """Copy a host array that the graph has computed of shapes; the recording uses the copy again."""
            token = recorder.set(None)
            try:
                return plan.put(array, **options)
            finally:
                recorder.reset(token)

        try:
            with recording:
                outs = yield from _short(self._runner.run(submit, plan, arrays, resident, put))
                recording.returns(*outs)
                lends = _are_own(outs)
        except (BudgetSpent, GpuRefStale):
            raise
        except (AccelError, ValueError, TypeError, RuntimeError):
            self._seen[key] = True
            return None
        return Instance(recording, lends)


def _on_device(plan: Any, given: Sequence[Any]) -> list[Any]:
    """The inputs; arrays that no node needs on the host are copied to the device."""
    arrays = []
    for at, array in enumerate(given):
        if isinstance(array, Operand) or stays_on_host(array):
            arrays.append(array)
        else:
            plan.check_host(at, array)
            arrays.append(plan.put(array))
    return arrays


def _key(given: Sequence[Any]) -> tuple[Any, ...]:
    """The layouts of arrays on the device, and the values of those on the host, which are a part of a recording."""
    return tuple([each.layout.wire if isinstance(each, Operand) else _key_of(each) for each in given])


def _key_of(array: Any) -> Any:
    if stays_on_host(array):
        return array.dtype.str, array.shape, array.tobytes()
    try:
        return layout_of(as_dtype(array.dtype), array.shape).wire
    except (TypeError, ShapeError):
        return None  # it is refused when it is checked


def _lends(instance: Instance) -> bool:
    """True if the caller may have the results of its next replay as they are."""
    return instance.lends and instance.is_idle


def _are_own(outs: list[Any]) -> bool:
    """Whether the ops of the open recording make these arrays, each in memory of its own."""
    open_, owners = recorder.get(), [out.allocation for out in outs]
    return open_ is not None and all(map(open_.makes, owners)) and len(set(map(id, owners))) == len(owners)


def _short(walk: Walk[list[Any]]) -> Walk[list[Any]]:
    """A walk with few pauses.

    Raises:
        UnsupportedOp: It has more.
    """
    try:
        for _ in range(MOST_PAUSES):
            try:
                next(walk)
            except StopIteration as e:
                found: list[Any] = e.value
                return found
            yield
    finally:
        walk.close()
    raise UnsupportedOp(f"an execution of more than {MOST_PAUSES} nodes is not recorded")
