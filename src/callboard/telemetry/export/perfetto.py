"""``Perfetto``: a trace file for https://ui.perfetto.dev: a track for each actor, library and stream, with arrows.

An arrow leads from the message that called an op to the op's launch in its library, and from there to its execution on
the stream. While CUPTI records a device, another one leads from the launch to the op's first kernel or copy, and on to
each further one.
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from callboard.events.kinds import ACTIVITY, BATCH, DEAD, LOST, MARK, MESSAGE, OP, RECOVERED, STOPPED, TRACED
from callboard.events.ring import Event as Recorded
from callboard.telemetry.export.protobuf import (
    BEGIN,
    END,
    INSTANT,
    Event,
    Packets,
    annotated,
    arrowed,
    closed,
    event,
    event_name,
    flow,
    number_of,
    track,
    whole_packets,
)
from callboard.telemetry.export.wholefile import WholeFile

__all__ = ["Perfetto"]

ARROWS = 64
"""Most arrows from one message."""
KERNELS = 1 << 62
"""Added to an op's number: arrows to what CUPTI recorded of it."""
WAITING = 10_000
"""Most actors whose ops wait for the end of the message that called them."""

_Kind = tuple[bytes, Event, Event, Event, Event]
"""Of slices of one name on one track: the fields of their beginning; both events; the beginning with an arrow from it,
and to it, without its number."""


class Perfetto:
    """A subscriber that writes a trace file.

    Args:
        path: The file, which is replaced.
        name: Name of the application.

    Attributes:
        events: Number of slices and instants so far.

    Raises:
        OSError: It cannot be written.
    """

    def __init__(self, path: "str | os.PathLike[str]", name: str) -> None:
        self._file = WholeFile(path, "wb", whole_packets)
        self.events = 0
        self._uuids: dict[tuple[Any, ...], int] = {}
        self._names: dict[str, int] = {}
        self._kinds: dict[tuple[int, str], _Kind] = {}  # by track and name of a slice
        self._messages: dict[tuple[str, type], _Kind] = {}  # by path and class
        self._ops: dict[tuple[str, str, int], tuple[_Kind, int, _Kind]] = {}  # by device, tag and stream
        self._batches: dict[tuple[int, int, bool], _Kind] = {}  # by track, size and success
        self._lanes: defaultdict[Any, list[int]] = defaultdict(list)  # tracks of what runs side by side
        self._called: defaultdict[str, list[int]] = defaultdict(list)  # by actor
        self._until: dict[int, int] = {}
        self._recorded: set[str] = set()  # devices that CUPTI records
        self._packets = Packets()
        self._root = self._track((), name, 0, pid=os.getpid())
        self._ways = {
            MESSAGE: self._message,
            OP: self._op,
            TRACED: self._traced,
            BATCH: self._batch,
            DEAD: self._dead,
            LOST: self._lost,
            RECOVERED: self._recovered,
            STOPPED: self._stopped,
            MARK: self._mark,
            ACTIVITY: self._activity,
        }

    def take(self, events: Sequence[Recorded]) -> None:
        """Write these."""
        ways = self._ways
        for each in events:
            way = ways.get(each[2])
            if way is not None:
                way(each)
        self._file.add(self._packets.take())  # a program that crashes leaves a trace

    def close(self) -> None:
        """Close the file."""
        try:
            self._file.add(self._packets.take())
        finally:
            self._file.close()

    # -- kinds of events -----------------------------------------------------------------------------------------------

    def _op(self, each: Recorded) -> None:
        op, path = each[4], each[6]
        if path and (len(self._called) < WAITING or path in self._called):
            called = self._called[path]
            if len(called) < ARROWS:
                called.append(op)

    def _message(self, each: Recorded) -> None:
        _, ended, _, path, message, began, _ = each
        found = self._messages.get((path, message))
        if found is None:
            where = self._track(("actor", path), path, self._root)
            found = self._messages[path, message] = self._kind(where, message.__qualname__)
        fields, begins, ends, (start, arrow), _ = found
        called = self._called.pop(path, None)
        if called is not None:
            if len(called) == 1:
                begins = start, arrow + number_of(called[0])
            else:
                begins = closed(fields, b"".join(map(flow, called)))
        self.events += 1
        self._packets.add(began, begins, max(began, ended), ends)

    def _traced(self, each: Recorded) -> None:
        device, name, ops, until, add = self._device(each[3]), each[3], self._ops, self._until, self._packets.add
        recorded = name in self._recorded
        self.events += 2 * len(each[4])
        for op, tag, stream, began, enqueued, completed, ok, started, seconds in each[4]:
            start, launched, done = int(began * 1e9), int(enqueued * 1e9), int(completed * 1e9)
            at, number = int(started * 1e9) or launched, number_of(op)
            found = ops.get((name, tag, stream))
            if found is None:
                library = tag.partition(".")[0]
                launches = self._kind(self._track((device, library), library, device), tag)
                executes = self._track((device, stream), f"stream {stream}", device)
                found = ops[name, tag, stream] = launches, executes, self._kind(executes, tag)
            (launching, _, ends, (first, arrow), _), executes, (fields, _, ended, _, (last, ending)) = found
            begins = first, arrow + number
            if recorded:
                begins = closed(launching, flow(op) + flow(op | KERNELS))
            add(start, begins, max(start, launched), ends)
            begins = last, ending + number
            if not ok:
                begins = closed(fields, flow(op, ends=True) + annotated("result", "failed"))
            at = max(at, until.get(executes, 0))
            done = until[executes] = max(at, int((started + seconds) * 1e9) if started else done)
            add(at, begins, done, ended)

    def _activity(self, each: Recorded) -> None:
        device = self._device(each[3])
        self._recorded.add(each[3])
        for kind, name, op, tag, start, seconds, stream, nbytes in sorted(each[4], key=lambda record: record[4]):
            began = int(start * 1e9)
            call = kind in ("runtime", "driver")
            key, track = (
                (kind, "") if call else ("cupti", stream),
                f"{kind} calls" if call else f"CUPTI stream {stream}",
            )
            more = flow(op | KERNELS) if op and not call else b""
            if tag:
                more += annotated("op", tag)
            if nbytes:
                more += annotated("bytes", str(nbytes))
            lane = *key, each[3]
            where = self._lane(lane, began) or self._further(lane, track, device)
            self._slice(
                where,
                name if call or kind == "kernel" else f"{kind} {name}".rstrip(),
                began,
                began + int(seconds * 1e9),
                more,
            )

    def _batch(self, each: Recorded) -> None:
        _, ended, _, server, size, seconds, ok, *_ = each
        began = ended - int(seconds * 1e9)
        where = self._lane(server, began) or self._further(server, f"{server} batches", self._root)
        found = self._batches.get((where, size, ok))
        if found is None:
            found = self._kind(where, f"batch of {size}" if ok else f"batch of {size}: failed")
            self._batches[where, size, ok] = found
        self.events += 1
        self._until[where] = ended
        self._packets.add(began, found[1], ended, found[2])

    def _dead(self, each: Recorded) -> None:
        _, ns, _, path, message, reason = each
        where = self._track(("actor", path), path, self._root)
        self._instant(where, f"dead letter: {reason}", ns, annotated("message", message.__qualname__))

    def _lost(self, each: Recorded) -> None:
        _, ns, _, device, generation, error, text, failed, suspects, _ = each
        more = annotated("error", f"{error}: {text}") + annotated("suspects", "; ".join(suspects[:8]))
        self._instant(self._device(device), f"generation {generation} lost, {failed} ops failed", ns, more)

    def _recovered(self, each: Recorded) -> None:
        _, ns, _, device, generation, standby, seconds = each
        self._instant(self._device(device), f"generation {generation} ready ({standby}, {seconds:.3f} s)", ns)

    def _stopped(self, each: Recorded) -> None:
        self._instant(self._device(each[3]), "stopped", each[1], annotated("error", each[4]))

    def _mark(self, each: Recorded) -> None:
        _, ns, _, about, name, values = each
        where = self._track(("mark", about), about, self._root)
        self._instant(where, name, ns, b"".join(annotated(key, str(value)) for key, value in values.items()))

    # -- packets -------------------------------------------------------------------------------------------------------

    def _device(self, name: str) -> int:
        return self._track(("device", name), name, self._root)

    def _lane(self, key: Any, began: int) -> int:
        """A track of a key that is free by then; 0 if there is none: what ran side by side is on several tracks."""
        until = self._until
        for where in self._lanes[key]:
            if until[where] <= began:
                return where
        return 0

    def _further(self, key: Any, name: str, parent: int) -> int:
        """One more track of a key, or the last one."""
        lanes = self._lanes[key]
        where = self._track(("lane", key, min(len(lanes), ARROWS)), name, parent)
        if len(lanes) <= ARROWS:
            lanes.append(where)
        return where

    def _track(self, key: tuple[Any, ...], name: str, parent: int, pid: int = 0) -> int:
        uuid = self._uuids.get(key)
        if uuid is None:
            uuid = self._uuids[key] = len(self._uuids) + 1
            self._packets.parts.append(track(uuid, name, parent, pid))
        return uuid

    def _name(self, name: str) -> int:
        iid = self._names.get(name)
        if iid is None:
            iid = self._names[name] = len(self._names) + 1
            self._packets.parts.append(event_name(iid, name))
        return iid

    def _kind(self, where: int, name: str) -> _Kind:
        found = self._kinds.get((where, name))
        if found is None:
            begins, ends = event(BEGIN, where, self._name(name)), event(END, where)
            arrows = arrowed(begins), arrowed(begins, ends=True)
            found = self._kinds[where, name] = begins, closed(begins), closed(ends), *arrows
        return found

    def _slice(self, where: int, name: str, began: int, ended: int, more: bytes) -> None:
        self.events += 1
        fields, begins, ends, _, _ = self._kind(where, name)
        self._until[where] = ended
        self._packets.add(began, closed(fields, more) if more else begins, ended, ends)

    def _instant(self, where: int, name: str, ns: int, more: bytes = b"") -> None:
        self.events += 1
        self._packets.add_one(ns, closed(event(INSTANT, where, self._name(name)), more))
