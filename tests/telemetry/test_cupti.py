"""CUPTI's records and NVTX's ranges in a host: with a thread as the host, and modules of the test."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.telemetry.fakecupti import FakeCupti

import callboard as cb
from callboard.device.host.profiling import activity
from callboard.device.host.profiling.activity import CuptiActivity
from callboard.telemetry.nvidia import cupti as module
from callboard.telemetry.nvidia.cupti import CuptiSession
from callboard.telemetry.nvidia.nvtx import NvtxKernelTrace

LIMIT = 60.0
THREAD: dict[str, Any] = {"isolation": "thread"}


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupti]:
    fake, package = FakeCupti(), ModuleType("cupti")
    package.cupti = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupti", package)
    monkeypatch.setattr(module, "BACKENDS", {"cuda", "cpu"})
    yield fake
    assert CuptiActivity._user is None
    assert not fake.enabled
    assert not fake.ops


async def test_records_have_the_op_that_caused_them(cupti: FakeCupti) -> None:
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        await gpu.full((2,), 1.0)
        assert cupti.launches == 0
        began = time.monotonic()
        session = CuptiSession(gpu)
        await session.start(["kernel", "driver"])
        assert cupti.unrecorded == {251, 136}  # polls of the host
        for _ in range(3):
            await gpu.full((2,), 1.0)
        cupti.launch()  # by something that is no op
        drained = await session.drain()
        ended = time.monotonic()
        kernels = [record for record in drained.records if record.kind == "kernel"]
        calls = [record for record in drained.records if record.kind == "driver"]
        assert len(kernels) == len(calls) == cupti.launches
        assert [record.op for record in kernels] == [record.op for record in calls]
        assert kernels[-1].op == 0
        assert kernels[-1].tag == ""
        assert all(record.op and "." in record.tag for record in kernels[:-1])
        assert {(record.name, record.stream) for record in kernels} == {("_Z4gemmv", 7)}
        assert {record.name for record in calls} == {"cuLaunchKernel"}
        assert all(record.seconds == pytest.approx(2e-6) for record in kernels)
        assert all(began - 0.1 <= record.start <= ended + 0.1 for record in kernels)
        assert (drained.dropped, drained.losses) == (0, 0)
        cupti.copies = True
        await gpu.full((2,), 1.0)
        assert all(record.kind == "driver" for record in (await session.stop()).records)
        launched = cupti.launches
        await gpu.full((2,), 1.0)
        assert cupti.launches == launched
        assert (await session.stop()).records == []


async def test_copies_and_the_end_of_the_device(cupti: FakeCupti) -> None:
    cupti.copies = True
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        session = CuptiSession(gpu)
        await session.start(["memcpy"])
        await gpu.full((2,), 1.0)
        records = (await session.drain()).records
        assert {(record.kind, record.name, record.nbytes) for record in records} == {("memcpy", "htod", 64)}


async def test_ops_are_measured_beside_it(cupti: FakeCupti) -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        remove = await gpu.trace(seen.put_nowait)
        async with CuptiSession(gpu) as session:
            await gpu.full((2,), 1.0)
            first = await seen.get()
            await remove()
            await gpu.full((2,), 2.0)
            ops = {record.op for record in (await session.drain()).records}
            assert {first.op} < ops
            again = await gpu.trace(seen.put_nowait)
            await gpu.full((2,), 1.0)
            while (await seen.get()).op in ops:  # that of the op before may come late
                pass
            await again()


async def test_too_many_records_are_dropped_and_counted(cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "CAPACITY", 10)
    monkeypatch.setattr(module, "PART", 3)
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu, CuptiSession(gpu) as session:
        for _ in range(25):
            cupti.launch()
        drained = await session.drain()
        assert (len(drained.records), drained.dropped) == (10, 15)
        assert (await session.drain()).dropped == 0


async def test_a_host_without_cupti_says_what_to_install(cupti: FakeCupti) -> None:
    async with asyncio.timeout(LIMIT), cb.device("cpu", isolation="process") as gpu:
        with pytest.raises(cb.BackendUnavailable, match="cupti-python"):  # the test's module is in this process only
            await CuptiSession(gpu).start()
        assert not gpu._actor.settings.has("cupti-start")


async def test_a_lost_context_is_counted_and_the_next_one_is_recorded(
    cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cupti").mkdir()
    (tmp_path / "cupti" / "__init__.py").touch()
    made = "import sys\nfrom tests.telemetry.fakecupti import FakeCupti\nsys.modules[__name__] = FakeCupti()\n"
    (tmp_path / "cupti" / "cupti.py").write_text(made)
    for path in (Path(__file__).parents[2], tmp_path):
        monkeypatch.syspath_prepend(path)  # of hosts, too
    async with asyncio.timeout(LIMIT), cb.device("cpu", isolation="process") as gpu:
        async with CuptiSession(gpu) as session:
            await gpu.full((2,), 1.0)
            assert (await session.drain()).records
            await gpu.full((2,), 1.0)
            generation = gpu.watch_generation().value
            os.kill(gpu.health().host_pid, signal.SIGKILL)
            await gpu.watch_generation().changed(generation)
            drained = await session.drain()
            assert (drained.records, drained.losses) == ([], 1)
            await gpu.full((2,), 1.0)
            assert (await session.drain()).records


@pytest.mark.parametrize("kinds, says", [(["kernels"], "unknown 'kernels'"), ([], "nothing to record")])
async def test_kinds_are_checked(cupti: FakeCupti, kinds: list[str], says: str) -> None:
    async with cb.device("cpu", **THREAD) as gpu:
        with pytest.raises(ValueError, match=says):
            await CuptiSession(gpu).start(kinds)


async def test_cupti_has_one_user(cupti: FakeCupti) -> None:
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        async with CuptiSession(gpu):
            with pytest.raises(cb.UnsupportedOp, match="already"):
                await CuptiSession(gpu).start()
        cupti.taken = True
        with pytest.raises(cb.UnsupportedOp, match="MULTIPLE_SUBSCRIBERS"):
            await CuptiSession(gpu).start()
        cupti.taken = False
        async with CuptiSession(gpu):
            await gpu.full((2,), 1.0)


async def test_other_backends_are_refused() -> None:
    async with cb.device("cpu", **THREAD) as cpu:
        with pytest.raises(cb.UnsupportedOp, match="CUPTI records CUDA devices; cpu:0"):
            CuptiSession(cpu)


class FakeNvtx(ModuleType):
    """``nvtx``, with one domain."""

    def __init__(self) -> None:
        super().__init__("nvtx")
        self.ranges: list[str] = []
        self.depth = 0

    def get_domain(self, name: str) -> Any:
        def push(attributes: Any) -> None:
            self.depth += 1
            self.ranges.append(f"{name}:{attributes.message}")

        def pop() -> None:
            self.depth -= 1

        return SimpleNamespace(get_event_attributes=SimpleNamespace, push_range=push, pop_range=pop)


async def test_ranges_around_ops(monkeypatch: pytest.MonkeyPatch, cupti: FakeCupti) -> None:
    nvtx = FakeNvtx()
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        a = gpu.full((2, 2), 1.0)
        await a
        async with NvtxKernelTrace(gpu), CuptiSession(gpu):
            await gpu.blas.gemm(a, a)
        assert nvtx.ranges == ["callboard:blas.gemm"]
        assert nvtx.depth == 0
        await gpu.blas.gemm(a, a)
        assert len(nvtx.ranges) == 1
        with pytest.raises(ValueError, match="domain is empty"):
            NvtxKernelTrace(gpu, "")


async def test_without_nvtx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvtx", None)
    async with asyncio.timeout(LIMIT), cb.device("cpu", **THREAD) as gpu:
        with pytest.raises(cb.BackendUnavailable, match="need the package nvtx"):
            await NvtxKernelTrace(gpu).start()
        await gpu.full((2,), 1.0)
