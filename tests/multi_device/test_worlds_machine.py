"""Two worlds over four devices whose processes are killed at any time: every collective ends, right on all ranks or in
failure, and the worlds form again."""

import asyncio
import contextlib
import os
import signal
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from tests.conformance import collective_lab as lab
from tests.multi_device.world_lab import BOUND, begin, right

import callboard as cb

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.timeout(1800)]

RANKS = 4
LOST = (cb.ContextLost, cb.WorldLost)


class Worlds(RuleBasedStateMachine):
    """Drives two worlds over the same devices, in different order, from one loop."""

    runner: asyncio.Runner
    devices: list[cb.Device]
    counts: dict[str, int]

    @initialize()
    def open(self) -> None:
        self.worlds = self.run(self._open())
        self.flying: list[tuple[Any, Any, str, str]] = []

    async def _open(self) -> list[cb.World]:
        return [await cb.world(self.devices), await cb.world([self.devices[2], self.devices[0], self.devices[1]])]

    def run(self, coroutine: Any) -> Any:
        async def bounded() -> Any:
            async with asyncio.timeout(BOUND):
                return await coroutine

        return self.runner.run(bounded())

    @rule(
        which=st.integers(0, 1),
        kind=st.sampled_from(lab.KINDS),
        dtype=st.sampled_from(("f32", "i16", "bf16", "f8_e4m3")),
        op=st.sampled_from(lab.OPS),
        in_place=st.booleans(),
        rows=st.sampled_from((1, 3, 20_000)),
        times=st.integers(1, 5),
    )
    def call(self, which: int, kind: str, dtype: str, op: str, in_place: bool, rows: int, times: int) -> None:
        if kind in lab.REDUCTIONS and dtype == "i16":
            dtype = "i64"
        self.run(self._call(which, kind, dtype, op, in_place and kind in lab.IN_PLACE, rows, times))

    async def _call(self, which: int, kind: str, dtype: str, op: str, in_place: bool, rows: int, times: int) -> None:
        for _ in range(times):
            try:
                reply, want = begin(self.worlds[which], kind, dtype, op, in_place, rows)
            except LOST:  # it is forming, or an array is of a context that is gone
                self.counts["refused"] += 1
            else:
                self.flying.append((reply, want, kind, op))

    @rule(rank=st.integers(0, RANKS - 1))
    def kill(self, rank: int) -> None:
        pid = self.devices[rank].health().host_pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it was killed before, and has been reaped
                os.kill(pid, signal.SIGKILL)
                self.counts["kills"] += 1

    @rule()
    def wait(self) -> None:
        """For the oldest."""
        if self.flying:
            self.run(self._end(*self.flying.pop(0)))

    @rule(which=st.integers(0, 1))
    def ready(self, which: int) -> None:
        self.run(self.worlds[which].ready())

    async def _end(self, reply: Any, want: Any, kind: str, op: str) -> None:
        lost: BaseException | None = None
        try:
            await right(reply, want, kind, op)
        except LOST as e:
            lost = e
        self.counts["right" if lost is None else "lost"] += 1
        if isinstance(lost, cb.WorldLost):
            assert -1 <= lost.rank < RANKS

    def teardown(self) -> None:
        if not hasattr(self, "worlds"):
            return
        self.run(self._teardown())

    async def _teardown(self) -> None:
        for one in self.flying:
            await self._end(*one)
        for world in self.worlds:
            while True:  # a killed host may be noticed only now
                try:
                    await world.ready()
                    await right(*begin(world, "all_reduce", "f32"), "all_reduce")
                    self.counts["right"] += 1
                    break
                except LOST:
                    continue
            stats = world.stats()
            assert (stats.in_flight, stats.formation) == (0, stats.losses + 1)
            await world.close()


def run_machine(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, int]:
    """Run it on four processes; how often what happened."""
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", str(RANKS))
    counts = dict.fromkeys(("right", "lost", "refused", "kills"), 0)
    with asyncio.Runner() as runner:
        system = runner.run(cb.System("worlds").__aenter__())
        try:

            async def opened() -> list[cb.Device]:
                how: dict[str, Any] = {"isolation": "process", "standby": "warm", "max_restarts": 1_000_000}
                return list(await asyncio.gather(*(system.device(f"cpu:{i}", **how) for i in range(RANKS))))

            devices = runner.run(opened())
            made = type("Made", (Worlds,), {"runner": runner, "devices": devices, "counts": counts})
            run_state_machine_as_test(
                made,
                settings=settings(
                    deadline=None, suppress_health_check=list(HealthCheck), print_blob=False, database=None, **options
                ),
            )
        finally:
            runner.run(system.__aexit__(None, None, None))
    return counts


def test_killed_ranks_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = run_machine(monkeypatch, max_examples=2, stateful_step_count=10)
    assert counts["right"] > 0


@pytest.mark.slow
def test_killed_ranks_many(monkeypatch: pytest.MonkeyPatch, record_property: Any) -> None:
    counts = run_machine(monkeypatch, max_examples=60, stateful_step_count=40)
    assert min(counts.values()) > 0
    record_property("measured", f"collectives: {counts}")
