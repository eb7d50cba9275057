"""A state machine: memory that is freed, dropped, viewed and wanted while streams still use it.

Two streams are delayed by seed, and memory that goes back to the device is overwritten there, so memory that is used
again or given back too early shows as a wrong value; the limit lets a few arrays live at once.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.device.steps import Bump, Left, Right, StepsBackend

import callboard as cb
from callboard.core import registry
from callboard.device.host.context.blocks import size_class

N = 1024
"""Elements of the smaller arrays."""
LIMIT = 6 * size_class(4 * N)
"""Bytes that may be in use at once."""
BOUND = 20.0
WAYS: list[dict[str, Any]] = [{}, {"completion": "polled"}, {"dispatcher": "caller"}]
"""Who launches: the thread of the host; the loop too, where the thread only waits; the loop."""

OK, FAILED, UNKNOWN = "ok", "failed", "unknown"


class Held:
    """An array that the user has: its refs, and what the model knows of it.

    Attributes:
        refs: The array itself and views of it; emptied when the user drops them.
        freed: By ``free()``.
        value: What it holds, as of the last look.
        written: Whether the model has come to an op that writes it.
        state: Whether its contents are owed by an op that failed; unknown where nobody was there to be told.
        memory: Whether it has memory; unknown, too.
    """

    def __init__(self, ref: cb.GpuRef) -> None:
        self.nbytes = size_class(ref.nbytes)
        self.refs = [ref]
        self.views = [slice(None)]
        self.freed = False
        self.value = np.zeros(ref.shape, np.float32)
        self.written = False
        self.state = OK
        self.memory = FAILED

    @property
    def whole(self) -> bool:
        """Whether the first ref is of all of it."""
        return self.refs[0].size == self.value.size

    @property
    def alive(self) -> bool:
        """Whether the user can still name it: its memory may not be used otherwise."""
        return bool(self.refs) and not self.freed


class Step:
    """An op, or the end of an array, in program order.

    Attributes:
        reads: Arrays whose contents decide whether it fails.
        out: The array that it writes.
        whole: Whether it writes all of it, whatever was there.
        work: Its effect on the model's values.
    """

    def __init__(
        self, reply: Any, reads: Sequence[Held], out: Held, work: Callable[[], None], *, whole: bool = False
    ) -> None:
        self.reply = reply
        self.reads = list(reads)
        self.out = out
        self.work = work
        self.whole = whole


class FreesMachine(RuleBasedStateMachine):
    """A device with little memory against a list of arrays."""

    @initialize(seed=st.integers(0, 3), way=st.sampled_from(WAYS))
    def open(self, seed: int, way: dict[str, Any]) -> None:
        self.loop = asyncio.new_event_loop()
        self.undo = registry.register("steps", StepsBackend())
        self.run(self._open(f"faulty+steps?seed={seed}&delay=0.002", way))
        self.held: list[Held] = []
        self.steps: list[Step | Held] = []

    async def _open(self, name: str, way: dict[str, Any]) -> None:
        self.system = await cb.System("frees").start()
        self.dev = await self.system.device(name, isolation="thread", memory_limit=LIMIT, **way)

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, BOUND))

    def drawn(self, data: st.DataObject) -> tuple[Held, int]:
        """An array and the number of one of its refs."""
        held = data.draw(st.sampled_from(self.held[-5:]))
        return held, data.draw(st.integers(0, len(held.refs) - 1))

    def called(self, held: Held, call: Callable[[], Any]) -> Any:
        """Call an op that names the array: refused if it has been freed."""
        if held.freed:
            assert self.refusal(call) == "freed"
            return None
        return call()

    def refusal(self, call: Callable[[], Any]) -> str:
        """What a call is refused for. (An error that is kept, as ``pytest.raises`` does, would keep refs alive.)"""
        try:
            call()
        except cb.GpuRefStale as e:
            return str(e.reason)
        raise AssertionError("it was not refused")

    def keep(self, ref: cb.GpuRef) -> Held:
        self.held.append(Held(ref))
        return self.held[-1]

    # -- ops -----------------------------------------------------------------------------------------------------------

    @rule(times=st.integers(1, 3), value=st.integers(1, 100))
    def fill(self, times: int, value: int) -> None:
        ref = self.dev.empty((times * N,), "f32")
        held = self.keep(ref)
        self.steps.append(Step(ref, [], held, lambda: None, whole=True))
        filled = self.dev.fill(ref, value)
        self.steps.append(Step(filled, [], held, lambda: held.value.fill(value), whole=True))

    @rule(sizes=st.lists(st.integers(1, 3), min_size=2, max_size=4), value=st.integers(1, 100))
    def churn(self, sizes: list[int], value: int) -> None:
        """Arrays that are filled, read by another stream and dropped, each in the memory of those before it."""
        for k, times in enumerate(sizes):
            self.fill(times, value + k)
            passing = self.held[-1]
            made = self.dev.ask((Left, Right)[k % 2](x=passing.refs[0], n=1))
            self.add(made, passing, 0)
            self.dropped(passing, 0)
            del passing

    def add(self, made: cb.GpuRef, source: Held, which: int) -> None:
        held, part = self.keep(made), source.views[which]
        self.steps.append(Step(made, [source], held, lambda: np.add(source.value[part], 1, out=held.value), whole=True))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), message=st.sampled_from([Left, Right]))
    def derive(self, data: st.DataObject, message: Any) -> None:
        """A new array, from one or from a view of one."""
        source, which = self.drawn(data)
        made = self.called(source, lambda: self.dev.ask(message(x=source.refs[which])))
        if made is not None:
            self.add(made, source, which)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def bump(self, data: st.DataObject) -> None:
        """In place, an array or a part of it."""
        held, which = self.drawn(data)
        done = self.called(held, lambda: self.dev.ask(Bump(x=held.refs[which], n=3)))
        if done is not None:
            part = held.views[which]
            self.steps.append(Step(done, [held], held, lambda: _add(held.value[part], 3)))

    @precondition(lambda self: len(self.held) > 1)
    @rule(data=st.data(), message=st.sampled_from([Left, Right]))
    def overwrite(self, data: st.DataObject, message: Any) -> None:
        """All of an array, by an op that does not look at it: what failed before is forgotten."""
        source, which = self.drawn(data)
        shape = source.refs[which].shape
        others = [h for h in self.held if h is not source and h.whole and h.refs[0].shape == shape and not h.freed]
        if others and not source.freed:
            out, part = data.draw(st.sampled_from(others)), source.views[which]
            done = self.dev.ask(message(x=source.refs[which], out=out.refs[0]))
            work = Step(done, [source], out, lambda: np.add(source.value[part], 1, out=out.value), whole=True)
            self.steps.append(work)

    # -- ends ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(data=st.data(), half=st.booleans())
    def view(self, data: st.DataObject, half: bool) -> None:
        held, _ = self.drawn(data)
        part = slice(len(held.value) // 2 if half else 0, None)
        held.refs.append(held.refs[0][part if held.whole else slice(None)])
        held.views.append(part if held.whole else held.views[0])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """By any of its refs, once or again."""
        held, which = self.drawn(data)
        held.refs[which].free()
        if not held.freed:
            held.freed = True
            self.steps.append(held)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        """A ref; with the last one, the array."""
        self.dropped(*self.drawn(data))

    def dropped(self, held: Held, which: int) -> None:
        if len(held.refs) > 1:
            del held.refs[which], held.views[which]
            return
        self.held.remove(held)
        was_freed = held.freed
        for step in self.steps:
            if isinstance(step, Step) and step.out is held:
                step.reply = None  # it holds the memory, and nobody is told how it ended
        held.refs.clear()
        if not was_freed:
            self.steps.append(held)

    # -- looks ---------------------------------------------------------------------------------------------------------

    @rule()
    def poll(self) -> None:
        """Wait for all, and go through what happened in program order."""
        self.run(self.dev.drain())
        steps, self.steps = self.steps, []
        # What may be in memory at each step. A free that comes later in the program has come before a want of memory is
        # answered, which only the loop does, and that has not run; unless it had to stay behind an op that names it.
        before = {id(h): h for h in self._alive_before}
        named = {id(h) for step in steps if isinstance(step, Step) for h in (*step.reads, step.out)}
        for step in steps:
            if isinstance(step, Held) and id(step) not in named:
                before.pop(id(step), None)
        for step in steps:
            if isinstance(step, Held):
                before.pop(id(step), None)
                continue
            out = step.out
            before[id(out)] = out
            error = step.reply.exception() if step.reply is not None else None
            source = [h.state for h in step.reads]
            wants = out.memory != OK
            if step.reply is None:
                ended = UNKNOWN
            elif error is None:
                ended = OK
                assert FAILED not in source, "it read what had failed, and succeeded"
            else:
                ended = FAILED
                assert type(error) is cb.OutOfMemory, repr(error)
                if OK in source or not source:
                    others = [h.nbytes for h in before.values() if h is not out and h.memory != FAILED]
                    assert wants, "it wanted no memory"
                    assert sum(others) + out.nbytes > LIMIT, f"{out.nbytes} beside {others} were refused"
            if ended != FAILED:
                step.work()
            if wants and (
                ended != FAILED or out.written
            ):  # the second op may fail by what it reads, and have got memory
                out.memory = OK if ended == OK else UNKNOWN
            out.state, out.written = ended, True
        self._alive_before = [h for h in self.held if h.alive]
        used = self.run(self.dev.stats()).used_bytes
        certain, possible = (
            sum(h.nbytes for h in self._alive_before if h.memory in which) for which in ((OK,), (OK, UNKNOWN))
        )
        assert certain <= used <= min(possible, LIMIT), (certain, used, possible)

    _alive_before: Sequence[Held] = ()

    @precondition(lambda self: self.held and not self.steps)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        held, which = self.drawn(data)
        ref = held.refs[which]
        got = self.called(held, lambda: self.run(_got(self.dev, ref)))
        if held.state == FAILED:
            assert held.freed or type(got) is cb.OutOfMemory
        elif not held.freed:
            np.testing.assert_array_equal(got, held.value[held.views[which]])

    @invariant()
    def no_context_is_lost(self) -> None:
        assert not hasattr(self, "dev") or self.dev.health().restarts == 0

    def teardown(self) -> None:
        self.poll()
        while self.held:
            held = self.held.pop()
            if held.alive and held.state == OK:
                np.testing.assert_array_equal(self.run(_got(self.dev, held.refs[0])), held.value[held.views[0]])
            held.refs.clear()
        self._alive_before = ()
        self.run(self.dev.trim())
        stats = self.run(self.dev.stats())
        assert (stats.used_bytes, stats.cached_bytes, stats.parked) == (0, 0, 0)
        self.run(self.system.stop())
        self.undo()
        self.loop.close()


def _add(array: np.ndarray, number: float) -> None:
    array += number


async def _got(dev: cb.Device, ref: cb.GpuRef) -> Any:
    """The value, or the error. (One that is raised would keep the ref alive, by its traceback.)"""
    reply = ref.get()
    await dev.drain()
    return reply.exception() if reply.done() and reply.exception() is not None else await reply


FreesMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFrees = FreesMachine.TestCase
