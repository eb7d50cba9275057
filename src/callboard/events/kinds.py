"""The kinds of events, and what follows ``(number, nanoseconds, kind, where)`` in each.

Events hold texts, numbers and classes: no message, no array and no exception, whose memory they would keep.
"""

from typing import Final

__all__ = [
    "ACTIVITY",
    "ACTOR",
    "BATCH",
    "DEAD",
    "FIELDS",
    "HTTP",
    "LOST",
    "MARK",
    "MESSAGE",
    "NAMES",
    "OP",
    "RECOVERED",
    "REQUEST",
    "RESIDENT",
    "SETTLED",
    "STOPPED",
    "TRACED",
]

MESSAGE: Final = 1
"""An actor handled a message. Where: its path. Class of the message, ns when its handler began, whether it
succeeded."""

ACTOR: Final = 2
"""An actor changed. Where: its path. ``"started"``, ``"restarted"``, ``"failed"`` or ``"stopped"``; the error's class
or ``""``."""

DEAD: Final = 3
"""A dead letter. Where: the path of its target. Class of the message, reason."""

OP: Final = 4
"""An op was called. Where: the device. Id, tag, path of the actor that called it or ``""``, trace context of the
request that caused it, or of the batch, or None. Like ``SETTLED``, it is written only while an exporter wants it."""

SETTLED: Final = 5
"""Ops have their completions. Where: the device. Ids of those that succeeded, tags of those that failed."""

TRACED: Final = 6
"""Ops as their context host saw them. Where: the device. A list of
``(op, tag, stream, began, enqueued, completed, ok, started, seconds)``, in seconds of ``time.monotonic()``."""

LOST: Final = 7
"""A context was lost. Where: the device. Ordinal, the error's class and text, number of ops that failed, suspects as
texts, and the numbers of ops that failed by tag."""

RECOVERED: Final = 8
"""A context took over. Where: the device. Ordinal; ``"hot"``, ``"warm"`` or ``"cold"``; seconds since the loss."""

STOPPED: Final = 9
"""A device takes no more work. Where: the device. Text of the error."""

RESIDENT: Final = 10
"""A resident actor changed. Where: the device. Name; ``"ready"``, ``"restarting"``, ``"restarted"`` or ``"stopped"``;
the error's class or ``""``."""

BATCH: Final = 11
"""A server ran a batch, or a step. Where: the server. Number of requests, seconds of the call, whether it succeeded,
the trace context of what it did, or None, and those of the sampled requests in it: if there are several, its own.
Written as ``REQUEST`` is."""

REQUEST: Final = 12
"""A request to a server ended. Where: the server. Number; when it arrived and when it was begun, in seconds of the
server's clock (the loop's); how it ended; its trace context, and the one that it came with, or None. Written while an
exporter wants the details, or if the request is sampled."""

MARK: Final = 13
"""A note. Where: what it is about. Name, a mapping of plain values."""

ACTIVITY: Final = 14
"""What CUPTI recorded. Where: the device. A list of ``(kind, name, op, tag, start, seconds, stream, nbytes)``, in
seconds of ``time.monotonic()``, which is empty when recording begins."""

HTTP: Final = 15
"""A POST request over HTTP was answered. Where: its route. Method, status, id, name of its model or ``""``, ns when it
arrived; its trace context, and the one that it came with, or None. Written if a sampler has begun it, and it is
sampled or an exporter wants the details."""

NAMES: Final = {
    MESSAGE: "message",
    ACTOR: "actor",
    DEAD: "dead_letter",
    OP: "op",
    SETTLED: "settled",
    TRACED: "traced",
    LOST: "lost",
    RECOVERED: "recovered",
    STOPPED: "stopped",
    RESIDENT: "resident",
    BATCH: "batch",
    REQUEST: "request",
    MARK: "mark",
    ACTIVITY: "activity",
    HTTP: "http",
}

FIELDS: Final = {
    MESSAGE: ("actor", "message", "began", "ok"),
    ACTOR: ("actor", "what", "cause"),
    DEAD: ("actor", "message", "reason"),
    OP: ("device", "id", "op", "actor", "trace"),
    SETTLED: ("device", "done", "failed"),
    TRACED: ("device", "records"),
    LOST: ("device", "generation", "error", "text", "ops", "suspects", "tags"),
    RECOVERED: ("device", "generation", "standby", "seconds"),
    STOPPED: ("device", "text"),
    RESIDENT: ("device", "actor", "what", "cause"),
    BATCH: ("server", "size", "seconds", "ok", "trace", "requests"),
    REQUEST: ("server", "id", "arrived", "began", "end", "trace", "parent"),
    MARK: ("about", "name", "values"),
    ACTIVITY: ("device", "records"),
    HTTP: ("route", "method", "status", "id", "model", "arrived", "trace", "parent"),
}
"""Names of what follows number, time and kind."""
