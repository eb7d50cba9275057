"""Calls with repeated bindings: the cache changes nothing but the time they take."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.device.host.context.hosting import Buffer, Hosted, vector
from tests.device.steps import Bump, Left, Right, StepsBackend, events

from callboard.device.host.context import blocks
from callboard.device.host.context.blocks import BindingCache
from callboard.device.host.context.pending import FAILED
from callboard.device.host.context.plans import plan as plan_module
from callboard.kernel.memory import Empty, Fill
from callboard.testing.faulty import FaultyBackend

ARRAYS, N = 3, 4
Act = tuple[str, int, int, bool]

acts = st.lists(
    st.tuples(
        st.sampled_from(["left", "left", "left", "right", "bump", "bump", "fill", "new", "again", "free", "settle"]),
        st.integers(0, ARRAYS - 1),
        st.integers(0, ARRAYS - 1),
        st.booleans(),
    ),
    min_size=10,
    max_size=60,
)
faults = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"fail_at": st.integers(4, 30)}),
    st.fixed_dictionaries({"crash_at": st.integers(4, 30)}),
    st.fixed_dictionaries({"refuse_at": st.integers(4, 30)}),
)


def part(buffer: Buffer, half: bool) -> Buffer:
    return Buffer(buffer.id, vector(N // 2), 4 * N // 2) if half else buffer


def played(program: list[Act], fault: dict[str, int], seed: int) -> tuple[Any, ...]:
    """What a context says of a program, and the arrays that are left."""
    host = Hosted(FaultyBackend(StepsBackend(), seed=seed, delay=0.001, **fault))
    try:
        arrays = [host.call(Empty(shape=(N,), dtype="f32"))[1][0] for _ in range(ARRAYS)]
        for array in arrays:
            host.call(Fill(out=array, fill_value=1.0))
        for what, i, j, half in program:
            x, y = part(arrays[i], half), part(arrays[j], half)
            if what in ("left", "right") and i != j:
                host.call((Left if what == "left" else Right)(x=x, out=y))
            elif what == "bump":
                host.call(Bump(x=x))
            elif what == "fill":
                host.call(Fill(out=x, fill_value=float(j)))
            elif what == "new":
                host.call(Left(x=x))  # makes an array that nobody uses
            elif what == "again":  # the buffer is freed, and another may get its memory
                host.free(arrays[i])
                arrays[i] = host.call(Empty(shape=(N,), dtype="f32"))[1][0]
                host.call(Fill(out=arrays[i], fill_value=float(j)))
            elif what == "free":
                host.free(arrays[i])  # named again, it is refused
            else:
                host.finish()
        host.finish()
        failed = {op: (f.error, f.id) for op, f in host.failed.items()}
        return sorted(host.done), failed, [contents(host, array) for array in arrays]
    finally:
        host.close()


def contents(host: Hosted, array: Buffer) -> list[float] | None:
    """The values; None where there are none: it is freed, or the op failed that was to write it."""
    block = host.context.admission.buffers.get(array.id)
    if block is None or (block.source is not None and block.source.state == FAILED):
        return None
    values: list[float] = host.array(array).tolist()
    return values


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(acts, faults, st.integers(0, 3))
def test_completions_and_values_are_those_without_it(program: list[Act], fault: dict[str, int], seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "BindingCache", lambda: None)
        wanted = played(program, fault, seed)
    assert played(program, fault, seed) == wanted


@pytest.fixture
def host() -> Iterator[Hosted]:
    events.clear()
    hosted = Hosted()
    yield hosted
    for event in list(events.values()):
        event.set()
    hosted.close()


def made(host: Hosted) -> Buffer:
    _, (buffer,) = host.call(Empty(shape=(N,), dtype="f32"))
    host.call(Fill(out=buffer, fill_value=1.0))
    return buffer


def kept(host: Hosted) -> BindingCache:
    (plan,) = (plan for plan in host.context.admission.plans.by_signature.values() if plan.tag == "left.bump")
    assert plan.binding_cache is not None
    return plan.binding_cache


def test_places_are_bound_when_they_come_again(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    x = made(host)
    looked: list[Any] = []
    resolve = host.context.admission.launching._resolve
    monkeypatch.setattr(host.context.admission.launching, "_resolve", lambda *a: (looked.append(a), resolve(*a))[1])
    for _ in range(6):
        host.call(Bump(x=x))
    host.finish()
    assert len(looked) == 2
    np.testing.assert_array_equal(host.array(x), [7] * N)


def test_a_buffer_that_was_freed_is_refused_though_its_memory_is_in_use_again(host: Hosted) -> None:
    x = made(host)
    for _ in range(3):
        host.call(Bump(x=x))
    block = host.context.admission.buffers[x.id]
    host.finish()
    host.free(x)
    y = made(host)
    assert host.context.admission.buffers[y.id] is block
    late, _ = host.call(Bump(x=x))
    host.finish()
    assert host.failed[late].error == "GpuRefStale"
    np.testing.assert_array_equal(host.array(y), [1] * N)


def test_a_failed_operand_is_found_each_time(host: Hosted) -> None:
    x, y = made(host), made(host)
    for _ in range(3):
        host.call(Left(x=x, out=y))
    bad, _ = host.call(Left(x=y, out=x, fails=True))
    waits, _ = host.call(Left(x=x, out=y))
    host.finish()
    inherits, _ = host.call(Left(x=x, out=y))
    host.call(Fill(out=x, fill_value=5.0))
    heals, _ = host.call(Left(x=x, out=y))
    host.finish()
    assert {op: f.id for op, f in host.failed.items()} == {bad: bad, waits: bad, inherits: bad}
    assert heals in host.done
    np.testing.assert_array_equal(host.array(y), [6] * N)


def test_what_is_remembered_is_bounded(host: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "SEEN", 4)
    arrays = [made(host) for _ in range(6)]
    for x in arrays * 3:
        host.call(Bump(x=x))
    host.finish()
    assert len(kept(host).by_bindings) <= 4
    for x in arrays:
        np.testing.assert_array_equal(host.array(x), [4] * N)


def test_blocks_of_others_are_not_kept(host: Hosted) -> None:
    x = made(host)
    host.context.admission.buffers[x.id].buffer = 0  # as of what was borrowed, or adopted
    for _ in range(4):
        host.call(Bump(x=x))
    host.finish()
    assert list(kept(host).by_bindings.values()) == [None]
