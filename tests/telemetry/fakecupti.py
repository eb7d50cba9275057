# ruff: noqa: N801, N815 - the names of CUPTI
"""A module like ``cupti.cupti``, in which each launch of an op makes an API call and a kernel."""

import enum
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class cuptiError(Exception):
    pass


class ActivityKind(enum.IntEnum):
    MEMCPY = 1
    MEMSET = 2
    DRIVER = 4
    RUNTIME = 5
    CONCURRENT_KERNEL = 10
    MEMCPY2 = 22
    EXTERNAL_CORRELATION = 39


class ExternalCorrelationKind(enum.IntEnum):
    CUSTOM0 = 4


class CallbackDomain(enum.IntEnum):
    DRIVER_API = 1
    RUNTIME_API = 2


class ActivityMemcpyKind(enum.IntEnum):
    HTOD = 1


class driver_api_trace_cbid(enum.IntEnum):
    cuStreamQuery = 251
    cuLaunchKernel = 307


class runtime_api_trace_cbid(enum.IntEnum):
    cudaEventQuery_v3020 = 136


class FakeCupti:
    """The module.

    Attributes:
        late: CUPTI's clock is this many nanoseconds behind the host's.
        copies: Launches copy, rather than execute kernels.
        taken: Another profiler uses CUPTI.
        unrecorded: API calls that are not to be recorded.
    """

    cuptiError, ActivityKind = cuptiError, ActivityKind
    ExternalCorrelationKind, CallbackDomain = ExternalCorrelationKind, CallbackDomain
    ActivityMemcpyKind = ActivityMemcpyKind
    driver_api_trace_cbid, runtime_api_trace_cbid = driver_api_trace_cbid, runtime_api_trace_cbid

    def __init__(self) -> None:
        self.enabled: set[int] = set()
        self.unrecorded: set[int] = set()
        self.ops: list[int] = []
        self.buffer: list[Any] = []
        self.launches = 0
        self.late = 5_000_000_000
        self.copies = self.taken = False
        self._completed: Callable[[list[Any]], None] | None = None

    def activity_register_callbacks(self, requested: Callable[[], Any], completed: Callable[[list[Any]], None]) -> None:
        assert requested()[0] > 0
        self._completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.taken:
            raise cuptiError("MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")
        self.enabled.add(kind)

    def activity_disable(self, kind: int) -> None:
        self.enabled.discard(kind)

    def activity_enable_driver_api(self, number: int, enable: int) -> None:
        assert ActivityKind.DRIVER in self.enabled, "CUPTI takes exceptions from what is enabled only"
        assert not enable
        self.unrecorded.add(number)

    def activity_enable_runtime_api(self, number: int, enable: int) -> None:
        assert ActivityKind.RUNTIME in self.enabled
        assert not enable
        self.unrecorded.add(number)

    def activity_push_external_correlation_id(self, kind: int, op: int) -> None:
        self.ops.append(op)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        self.launch(self.ops[-1])
        return self.ops.pop()

    def launch(self, op: int = 0) -> None:
        """An API call, and what it launches."""
        self.launches += 1
        now, here = self.get_timestamp(), {"correlation_id": self.launches, "stream_id": 7}
        copy = {"bytes": 64, "copy_kind": 1} if self.copies else {"name": "_Z4gemmv"}
        kind = ActivityKind.MEMCPY if self.copies else ActivityKind.CONCURRENT_KERNEL
        made = [
            SimpleNamespace(kind=kind, start=now, end=now + 2000, **here, **copy),
            SimpleNamespace(kind=ActivityKind.DRIVER, cbid=307, start=now, end=now + 10, **here),
        ]
        if op:
            made.append(SimpleNamespace(kind=ActivityKind.EXTERNAL_CORRELATION, external_id=op, **here))
        self.buffer += [each for each in made if each.kind in self.enabled]

    def activity_flush_all(self, flag: int) -> None:
        assert self._completed is not None
        done, self.buffer = self.buffer, []
        self._completed(done)

    def get_timestamp(self) -> int:
        return time.monotonic_ns() - self.late

    def get_callback_name(self, domain: int, number: int) -> str:
        return {(1, 307): "cuLaunchKernel"}[domain, number]
