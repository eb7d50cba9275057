"""A property: whatever is lost when, a copy ends once, with the bytes of its source or with an error."""

import contextlib
import os
import signal
from collections.abc import Iterator

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import callboard as cb

DEVICES = 4
BOUND = 60.0
PHASES = (Phase.explicit, Phase.generate)  # what a kill interrupts is never the same, so nothing can be shrunk

steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("copy"), st.integers(0, 63), st.integers(0, 3)),
        st.tuples(st.just("copy"), st.integers(0, 63), st.integers(0, 3)),
        st.tuples(st.just("overwrite"), st.integers(0, 63), st.just(0)),
        st.tuples(st.just("kill"), st.integers(0, 3), st.just(0)),
    ),
    min_size=10,
    max_size=40,
)


@pytest.fixture
def devices() -> Iterator[list[cb.sync.Device]]:
    before = os.environ.get("CALLBOARD_CPU_DEVICES")
    os.environ["CALLBOARD_CPU_DEVICES"] = str(DEVICES)
    with cb.sync.System() as system:
        kinds = ("process", "process", "process", "thread")  # a thread is not killed
        yield [
            system.device(f"cpu:{i}", isolation=kind, standby=None, max_restarts=10**6)  # type: ignore[arg-type]
            for i, kind in enumerate(kinds)
        ]
    del os.environ["CALLBOARD_CPU_DEVICES"]
    if before is not None:
        os.environ["CALLBOARD_CPU_DEVICES"] = before


def check(devices: list[cb.sync.Device], plan: list[tuple[str, int, int]]) -> None:
    """Every array has a number of its own in all its elements, so that bytes tell where they come from."""
    made: list[tuple[cb.sync.Ref, float]] = []
    number = 0
    for what, which, to in plan:
        if what == "kill":
            health = devices[which].health()
            if devices[which].isolation == "process" and health.ok and health.host_pid is not None:
                with contextlib.suppress(ProcessLookupError):  # killed before, which is not known yet
                    os.kill(health.host_pid, signal.SIGKILL)
            continue
        number += 1
        try:
            if what == "put" or not made:
                made.append((devices[which % DEVICES].full(5000, float(number)), float(number)))
            elif what == "copy":
                source, value = made[which % len(made)]
                made.append((source.to(devices[to]), value))
            else:
                at = which % len(made)
                ref, _ = made[at]
                device = next(d for d in devices if d.name == ref.device)
                filled = device.fill(ref, float(number)), float(number)
                # other refs of this memory would read the new number, and end as the ops that made them ended
                made[:] = [filled if r.allocation is ref.allocation else (r, v) for r, v in made]
        except cb.ContextLost:
            pass
    for ref, value in made:
        try:
            got = ref.get()
        except cb.ContextLost:
            with contextlib.suppress(cb.ContextLost):  # it may have been made, and be lost since
                ref.result(BOUND)
            continue
        np.testing.assert_array_equal(got, np.full(5000, value, "f4"))
        assert ref.result(BOUND) is ref
    for device in devices:
        device.ready()
        device.drain()  # nothing is held for a copy that has ended


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(steps)
def test_no_copy_delivers_bytes_of_another_generation(
    devices: list[cb.sync.Device], plan: list[tuple[str, int, int]]
) -> None:
    check(devices, plan)


@pytest.mark.slow
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(steps)
def test_no_copy_delivers_bytes_of_another_generation_often(
    devices: list[cb.sync.Device], plan: list[tuple[str, int, int]]
) -> None:
    check(devices, plan)
