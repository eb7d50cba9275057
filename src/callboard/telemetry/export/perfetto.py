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
from callboard.events.ring import Event
from callboard.telemetry.export.protobuf import (
    BEGIN,
    END,
    INSTANT,
    Packets,
    annotated,
    closed,
    event,
    event_name,
    flow,
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
        self._kinds: dict[tuple[int, str], tuple[bytes, bytes, bytes]] = {}  # by track and name of a slice
        self._called: defaultdict[str, list[int]] = defaultdict(list)
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

    def take(self, events: Sequence[Event]) -> None:
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

    def _op(self, each: Event) -> None:
        _, _, _, _, op, _, path = each
        if path and (len(self._called) < WAITING or path in self._called):
            called = self._called[path]
            if len(called) < ARROWS:
                called.append(op)

    def _message(self, each: Event) -> None:
        _, ended, _, path, message, began, _ = each
        where = self._track(("actor", path), path, self._root)
        called = self._called.pop(path, None)
        more = b"".join(map(flow, called)) if called else b""
        self._slice(where, message.__qualname__, began, ended, more)

    def _traced(self, each: Event) -> None:
        device, recorded = self._device(each[3]), each[3] in self._recorded
        for op, tag, stream, began, enqueued, completed, ok, started, seconds in each[4]:
            start, launched, done = int(began * 1e9), int(enqueued * 1e9), int(completed * 1e9)
            at = int(started * 1e9) or launched
            library = tag.partition(".")[0]
            launches = self._track((device, library), library, device)
            arrows = flow(op) + flow(op | KERNELS) if recorded else flow(op)
            self._slice(launches, tag, start, launched, arrows)
            executes = self._track((device, stream), f"stream {stream}", device)
            more = flow(op, ends=True)
            if not ok:
                more += annotated("result", "failed")
            at = max(at, self._until.get(executes, 0))
            self._slice(executes, tag, at, int((started + seconds) * 1e9) if started else done, more)

    def _activity(self, each: Event) -> None:
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
            where = self._lane((*key, each[3]), track, device, began)
            self._slice(
                where,
                name if call or kind == "kernel" else f"{kind} {name}".rstrip(),
                began,
                began + int(seconds * 1e9),
                more,
            )

    def _batch(self, each: Event) -> None:
        _, ended, _, server, size, seconds, ok = each
        began = ended - int(seconds * 1e9)
        where = self._lane(("server", server), f"{server} batches", self._root, began)
        self._slice(where, f"batch of {size}" if ok else f"batch of {size}: failed", began, ended)

    def _dead(self, each: Event) -> None:
        _, ns, _, path, message, reason = each
        where = self._track(("actor", path), path, self._root)
        self._instant(where, f"dead letter: {reason}", ns, annotated("message", message.__qualname__))

    def _lost(self, each: Event) -> None:
        _, ns, _, device, generation, error, text, failed, suspects, _ = each
        more = annotated("error", f"{error}: {text}") + annotated("suspects", "; ".join(suspects[:8]))
        self._instant(self._device(device), f"generation {generation} lost, {failed} ops failed", ns, more)

    def _recovered(self, each: Event) -> None:
        _, ns, _, device, generation, standby, seconds = each
        self._instant(self._device(device), f"generation {generation} ready ({standby}, {seconds:.3f} s)", ns)

    def _stopped(self, each: Event) -> None:
        self._instant(self._device(each[3]), "stopped", each[1], annotated("error", each[4]))

    def _mark(self, each: Event) -> None:
        _, ns, _, about, name, values = each
        where = self._track(("mark", about), about, self._root)
        self._instant(where, name, ns, b"".join(annotated(key, str(value)) for key, value in values.items()))

    # -- packets -------------------------------------------------------------------------------------------------------

    def _device(self, name: str) -> int:
        return self._track(("device", name), name, self._root)

    def _lane(self, key: tuple[Any, ...], name: str, parent: int, began: int) -> int:
        """A track that is free by then: what ran side by side is on several tracks of a name."""
        lane = 0
        while True:
            where = self._track((*key, lane), name, parent)
            if self._until.get(where, 0) <= began or lane > ARROWS:
                return where
            lane += 1

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

    def _slice(self, where: int, name: str, began: int, ended: int, more: bytes = b"") -> None:
        self.events += 1
        found = self._kinds.get((where, name))
        if found is None:
            begins, ends = event(BEGIN, where, self._name(name)), event(END, where)
            found = self._kinds[where, name] = begins, closed(begins), closed(ends)
        if ended < began:
            ended = began
        self._until[where] = ended
        add = self._packets.add
        add(began, closed(found[0], more) if more else found[1])
        add(ended, found[2])

    def _instant(self, where: int, name: str, ns: int, more: bytes = b"") -> None:
        self.events += 1
        self._packets.add(ns, closed(event(INSTANT, where, self._name(name)), more))
