"""``CuptiActivity``: what CUPTI records in this process: kernels, copies and API calls, each with its op."""

import contextlib
import functools
import threading
import time
from collections import deque
from typing import Any

from callboard.core.errors import BackendUnavailable, UnsupportedOp

__all__ = ["CAPACITY", "KINDS", "CuptiActivity"]

KINDS = {
    "kernel": ("CONCURRENT_KERNEL",),
    "memcpy": ("MEMCPY", "MEMCPY2"),
    "memset": ("MEMSET",),
    "runtime": ("RUNTIME",),
    "driver": ("DRIVER",),
}
"""Categories, and CUPTI's kinds of each."""

NEEDED = ("RUNTIME", "DRIVER", "EXTERNAL_CORRELATION")
"""CUPTI names the op of an API call only while it records these calls."""

UNRECORDED = {
    "driver": (
        *("cuStreamQuery", "cuStreamQuery_ptsz", "cuEventQuery"),
        *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"),
    ),
    "runtime": ("cudaStreamQuery_v3020", "cudaEventQuery_v3020", "cudaGetDevice_v3020", "cudaGetLastError_v3020"),
}
"""API calls that launch nothing: the host polls streams without a pause, and their records would fill all buffers."""

CAPACITY = 1 << 16
"""Records that wait to be drained; the oldest ones are dropped, and counted."""
BUFFER = 4 << 20
"""Bytes of one of CUPTI's buffers."""

Record = tuple[str, str, int, str, float, float, int, int]


class CuptiActivity:
    """CUPTI's records, from now until :meth:`stop`. CUPTI has one user in a process.

    Args:
        kinds: Names of :data:`KINDS`.

    Raises:
        BackendUnavailable: ``cupti-python`` is not installed.
        UnsupportedOp: Another profiler uses CUPTI in this process, or CUPTI does not work here.

    Attributes:
        on: CUPTI records.
    """

    _user: "CuptiActivity | None" = None

    def __init__(self, kinds: list[str]) -> None:
        try:
            from cupti import cupti
        except ImportError as e:
            raise BackendUnavailable(
                "CUPTI needs the package cupti-python in the context host: "
                "pip install 'callboard[observability-full-cuda13]', or -cuda12"
            ) from e
        if CuptiActivity._user is not None:
            raise UnsupportedOp("another device of this process is recorded by CUPTI: open it with isolation='process'")
        self._cupti: Any = cupti
        self._error: type[Exception] = cupti.cuptiError
        self._names = {getattr(cupti.ActivityKind, name): kind for kind, names in KINDS.items() for name in names}
        self._external = cupti.ActivityKind.EXTERNAL_CORRELATION
        self._custom = cupti.ExternalCorrelationKind.CUSTOM0
        self._wanted = frozenset(kinds)
        self._lock = threading.Lock()
        self._records: deque[tuple[Any, ...]] = deque()
        self._dropped = 0
        self._ops: dict[int, int] = {}  # by CUPTI's correlation id
        self._tags: dict[int, str] = {}  # by op
        self._calls: dict[tuple[str, int], str] = {}  # names of API calls
        self._pushed = False
        self._enabled: list[Any] = []
        self.on = True
        CuptiActivity._user = self
        try:
            cupti.activity_register_callbacks(lambda: (BUFFER, 0), self._completed)
            for name in dict.fromkeys((*NEEDED, *(name for kind in kinds for name in KINDS[kind]))):
                kind = getattr(cupti.ActivityKind, name)
                cupti.activity_enable(kind)
                self._enabled.append(kind)
            self._leave_out(cupti.driver_api_trace_cbid, UNRECORDED["driver"], cupti.activity_enable_driver_api)
            self._leave_out(cupti.runtime_api_trace_cbid, UNRECORDED["runtime"], cupti.activity_enable_runtime_api)
        except self._error as e:
            self.stop()
            raise UnsupportedOp(f"CUPTI cannot record here (another profiler may use it): {e}") from e

    def _leave_out(self, numbers: Any, calls: tuple[str, ...], enable: Any) -> None:
        for call in calls:
            number = getattr(numbers, call, None)
            if number is not None:  # versions of CUPTI differ
                enable(number, 0)

    # -- around launches -----------------------------------------------------------------------------------------------

    def begin(self, op: int, tag: str) -> None:
        """API calls from now on are of this op."""
        try:
            self._cupti.activity_push_external_correlation_id(self._custom, op)
        except self._error:
            return
        self._pushed = True
        self._tags[op] = tag
        if len(self._tags) > CAPACITY:
            del self._tags[next(iter(self._tags))]

    def end(self) -> None:
        """They are no longer."""
        if self._pushed:
            self._pushed = False
            with contextlib.suppress(self._error):
                self._cupti.activity_pop_external_correlation_id(self._custom)

    # -- records -------------------------------------------------------------------------------------------------------

    def _completed(self, activities: list[Any]) -> None:
        """Take the records of a buffer, which end with this call; on a thread of CUPTI, or that of a flush."""
        for activity in activities:
            kind = activity.kind
            if kind == self._external:
                with self._lock:
                    self._ops[activity.correlation_id] = activity.external_id
                    if len(self._ops) > 2 * CAPACITY:
                        del self._ops[next(iter(self._ops))]
                continue
            category = self._names.get(kind)
            if category is None or category not in self._wanted:
                continue
            api = category in ("runtime", "driver")
            name = activity.cbid if api else getattr(activity, "name", "")
            if category == "memcpy":
                name = int(getattr(activity, "copy_kind", 0))
            stream = 0 if api else activity.stream_id
            record = category, name, activity.correlation_id, activity.start, activity.end, stream
            with self._lock:
                self._records.append((*record, int(getattr(activity, "bytes", 0))))
                if len(self._records) > CAPACITY:
                    self._records.popleft()
                    self._dropped += 1

    def drain(self, most: int) -> tuple[list[Record], int]:
        """The oldest finished records, and the number of those dropped since the last call.

        Each is ``(category, name, op, tag, start, seconds, stream, bytes)``, in seconds of ``time.monotonic()``; op 0:
        no op has caused it.
        """
        ahead = 0
        with contextlib.suppress(self._error):  # of a context that is lost: what came before is still there
            if self.on:
                self._cupti.activity_flush_all(0)
            ahead = time.monotonic_ns() - self._cupti.get_timestamp()
        with self._lock:
            taken = [self._records.popleft() for _ in range(min(most, len(self._records)))]
            dropped, self._dropped = self._dropped, 0
            ops = [self._ops.get(record[2], 0) for record in taken]
        return [self._record(record, op, ahead) for record, op in zip(taken, ops, strict=True)], dropped

    def _record(self, record: tuple[Any, ...], op: int, ahead: int) -> Record:
        category, name, _, start, end, stream, nbytes = record
        if category in ("runtime", "driver"):
            name = self._call_name(category, name)
        elif category == "memcpy":
            name = self._copy_name(name)
        start, seconds = (start + ahead) / 1e9, (end - start) / 1e9
        return category, str(name), op, self._tags.get(op, ""), start, seconds, int(stream), nbytes

    @functools.cached_property
    def _domains(self) -> dict[str, Any]:
        domain = self._cupti.CallbackDomain
        return {"runtime": domain.RUNTIME_API, "driver": domain.DRIVER_API}

    def _call_name(self, category: str, number: int) -> str:
        name = self._calls.get((category, number))
        if name is None:
            name = f"{category} call {number}"
            with contextlib.suppress(self._error):
                name = str(self._cupti.get_callback_name(self._domains[category], number))
            self._calls[category, number] = name
        return name

    def _copy_name(self, kind: int) -> str:
        with contextlib.suppress(ValueError):
            return str(self._cupti.ActivityMemcpyKind(kind).name).lower()
        return f"copy {kind}"

    def stop(self) -> None:
        """Record no more; what is finished can still be drained."""
        if not self.on:
            return
        self.end()
        for kind in self._enabled:
            with contextlib.suppress(self._error):
                self._cupti.activity_disable(kind)
        with contextlib.suppress(self._error):
            self._cupti.activity_flush_all(0)
        self.on = False
        if CuptiActivity._user is self:
            CuptiActivity._user = None
