"""A state machine: arrays and recordings that are replayed, freed, closed, and lost with their context."""

import gc
import os
import signal
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import callboard as cb

N = 3
WAIT = 60.0
LOSSES = 2
"""Most contexts that one example loses: each takes a new process."""
Array = np.ndarray[Any, Any]


class Cell:
    """An array: the ref, and what it must have."""

    def __init__(self, ref: Any, value: Array) -> None:
        self.ref = ref
        self.value = value


class Step(NamedTuple):
    """``kind`` on slots; slots count the inputs first, then the results in order."""

    kind: str
    slots: tuple[int, ...]
    number: int


class Chain:
    """A recording, and what it must do."""

    def __init__(self, recording: Any, steps: list[Step], inputs: list[Cell], results: list[int]) -> None:
        self.recording = recording
        self.steps = steps
        self.inputs = inputs
        self.results = results

    @property
    def written(self) -> set[int]:
        return {step.slots[-1] for step in self.steps if step.kind in ("add", "fill")}


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["product", "add", "copy", "fill", "draw"]),
        st.tuples(st.integers(0, 9), st.integers(0, 9)),
        st.integers(-2, 2),
    ),
    min_size=1,
    max_size=5,
)
VALUES = st.integers(0, 2**16).map(lambda seed: np.random.default_rng(seed).integers(-2, 3, (N, N)).astype("f8"))


def executed(dev: cb.sync.Device, generator: Any, step: Step, slots: list[Any]) -> None:
    """The step on refs; a result is appended."""
    given = [slots[at] for at in step.slots]
    if step.kind == "product":
        slots.append(dev.blas.gemm(given[0], given[1]))
    elif step.kind == "add":
        dev.blas.axpy(given[0].reshape(-1), given[1].reshape(-1), alpha=step.number)
    elif step.kind == "copy":
        slots.append(dev.copy(given[0].T))
    elif step.kind == "fill":
        dev.fill(given[0], step.number)
    else:
        slots.append(generator.integers(0, 9, (N, N)))


def modelled(twin: Any, step: Step, slots: list[Array]) -> None:
    """The step on arrays."""
    given = [slots[at] for at in step.slots]
    if step.kind == "product":
        slots.append(given[0] @ given[1])
    elif step.kind == "add":
        given[1] += step.number * given[0]
    elif step.kind == "copy":
        slots.append(given[0].T.copy())
    elif step.kind == "fill":
        given[0][...] = step.number
    else:
        slots.append(twin.integers(0, 9, (N, N)).get())


class Recordings(RuleBasedStateMachine):
    """Calls in NumPy beside replays on a device."""

    isolation = "thread"

    @initialize(steps=STEPS)
    def begin(self, steps: list[Step]) -> None:
        gc.freeze()  # the collection at the end looks at what this example has made
        self.systems = [cb.sync.System("machine"), cb.sync.System("twin")]
        self.dev = self.systems[0].device("cpu", isolation=self.isolation, standby=None, max_restarts=1000)  # type: ignore[arg-type]
        twin = self.systems[1].device("cpu", isolation="thread", standby=None)
        self.numbers, self.twin = (d.rng.generator(seed=3) for d in (self.dev, twin))
        self.cells: list[Cell] = []
        self.chains: list[Chain] = []
        self.losses = 0
        self.put(np.arange(9.0).reshape(N, N))
        self.put(np.ones((N, N)))
        self.remember(steps, self.cells[:2])

    @rule(value=VALUES)
    def put(self, value: Array) -> None:
        self.cells.append(Cell(self.dev.put(value), value.copy()))

    @rule(steps=STEPS, data=st.data())
    def record(self, steps: list[Step], data: st.DataObject) -> None:
        living = [cell for cell in self.cells if not cell.ref.is_stale]
        if len(living) < 2 or len(self.chains) > 3:
            return
        self.remember(steps, data.draw(st.permutations(living))[:2])

    def remember(self, steps: list[Step], inputs: list[Cell]) -> None:
        """Record these steps."""
        slots: list[Any] = [cell.ref for cell in inputs]
        whole: list[Step] = []
        whole_numbers: list[int] = []
        with self.dev.record(in0=inputs[0].ref, in1=inputs[1].ref) as recording:
            for step in [Step("copy", (0, 1), 0), Step("copy", (1, 0), 0), *steps]:
                a, b = (at % len(slots) for at in step.slots)
                numeric = [at for at in (a, b) if at not in whole_numbers]
                if step.kind in ("product", "add") and (len(numeric) < 2 or a == b):
                    continue  # drawn integers are no floats, and an array is not added to itself
                slots_of = {"fill": (a,), "copy": (a,), "draw": ()}
                slot = Step(step.kind, slots_of.get(step.kind, (a, b)), step.number)
                executed(self.dev, self.numbers, slot, slots)
                if step.kind == "draw" or (step.kind == "copy" and a in whole_numbers):
                    whole_numbers.append(len(slots) - 1)
                whole.append(slot)
            results = sorted({*whole_numbers, len(slots) - 1})
            recording.returns(*(slots[at] for at in results))
            slots.clear()  # the others share memory
        self.chains.append(Chain(recording, whole, list(inputs), results))

    @precondition(lambda self: self.chains)
    @rule(data=st.data(), n=st.integers(1, 3))
    def replay(self, data: st.DataObject, n: int) -> None:
        self.replayed(data, n)

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def replay_twice(self, data: st.DataObject) -> None:
        self.replayed(data, 1)
        self.replayed(data, 2)

    def replayed(self, data: st.DataObject, n: int) -> None:
        chain = data.draw(st.sampled_from(self.chains))
        given: dict[str, Any] = {}
        after = list(chain.inputs)
        for at in range(2):
            how = data.draw(st.sampled_from(["contents", "keep", "ref"]))
            living = [cell for cell in self.cells if not cell.ref.is_stale]
            if how == "contents":
                given[f"in{at}"] = data.draw(VALUES)
            elif how == "ref" and living:
                after[at] = data.draw(st.sampled_from(living))
                given[f"in{at}"] = after[at].ref
        try:
            got = chain.recording.replay(n, **given)
        except cb.ShapeError:
            assert after[0] is after[1]
            assert chain.written & {0, 1}
            return
        except cb.GpuRefStale:
            kept = [cell for at, cell in enumerate(after) if not isinstance(given.get(f"in{at}"), np.ndarray)]
            assert any(cell.ref.is_stale for cell in kept)
            self.adopt(chain, after, given)
            return
        assert after[0] is not after[1] or not chain.written & {0, 1}
        self.adopt(chain, after, given)
        for _ in range(n):
            slots = [cell.value for cell in chain.inputs]
            for step in chain.steps:
                modelled(self.twin, step, slots)
        for ref, at in zip(got if isinstance(got, tuple) else (got,), chain.results, strict=True):
            assert np.array_equal(ref.get(), slots[at], equal_nan=True)
        self.compare()

    def adopt(self, chain: Chain, after: list[Cell], given: dict[str, Any]) -> None:
        """What replay does with what it is given, whether or not it then finds all that it needs."""
        for at, cell in enumerate(after):
            value = given.get(f"in{at}")
            if isinstance(value, np.ndarray):
                if cell.ref.is_stale:  # a new array, which only the recording has
                    cell = Cell(chain.recording._ready().built.inputs[at].ref, value.copy())
                else:
                    cell.value[...] = value
            chain.inputs[at] = cell

    def compare(self) -> None:
        for cell in self.cells:
            if not cell.ref.is_stale:
                assert np.array_equal(cell.ref.get(), cell.value, equal_nan=True)

    @precondition(lambda self: self.cells)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        cell = data.draw(st.sampled_from(self.cells))
        cell.ref.free()
        self.cells.remove(cell)

    @precondition(lambda self: self.chains)
    @rule(data=st.data())
    def destroy(self, data: st.DataObject) -> None:
        chain = data.draw(st.sampled_from(self.chains))
        chain.recording.close()
        chain.inputs.clear()  # hypothesis keeps the chain, and it may be all that holds an array
        self.chains.remove(chain)

    @precondition(lambda self: self.isolation == "process" and self.losses < LOSSES)
    @rule()
    def lose(self) -> None:
        self.losses += 1
        self.compare()
        pid = self.dev.health().host_pid
        assert pid is not None
        seen = self.dev.generation
        os.kill(pid, signal.SIGKILL)
        self.dev.wait_generation(seen, timeout=WAIT)

    def teardown(self) -> None:
        if not hasattr(self, "systems"):
            return
        try:
            for chain in self.chains:
                chain.recording.close()
                self.cells += chain.inputs
            for cell in self.cells:  # hypothesis keeps what it has drawn
                cell.ref.free()
            gc.collect()  # frames of errors may hold refs
            self.dev.drain()
            stats = self.dev.stats()
            assert stats.buffers == 0
            assert "graph" not in stats.plans or stats.plans["graph"].entries == 0
        finally:
            gc.unfreeze()
            for system in self.systems:
                system.close()


class LostRecordings(Recordings):
    """The same on a device whose host is killed."""

    isolation = "process"


HEALTH = [HealthCheck.too_slow, HealthCheck.filter_too_much]
PHASES = [Phase.explicit, Phase.generate]

TestRecordings = Recordings.TestCase
TestRecordings.settings = settings(
    deadline=None, max_examples=30, stateful_step_count=12, phases=PHASES, suppress_health_check=HEALTH
)
TestLostRecordings = LostRecordings.TestCase
TestLostRecordings.settings = settings(
    deadline=None, max_examples=3, stateful_step_count=10, phases=PHASES, suppress_health_check=HEALTH
)
