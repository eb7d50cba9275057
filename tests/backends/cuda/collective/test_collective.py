"""NCCL calls of a rank, on a stand-in that computes on host memory: several ranks, of which one may fail."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from host_nccl import HostNccl, NCCLError
from tests.conformance import collective_lab as lab

from callboard.backends.cuda.collective import member
from callboard.backends.cuda.collective.library import CudaCollective
from callboard.backends.cuda.collective.member import CudaMember
from callboard.backends.cuda.collective.nccl import Nccl
from callboard.core.backend import Memory
from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError, WorldLost
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.collective import Join, Leave, Look, Offer, Part, Run, Step
from callboard.kernel.collective.library import end_members

WORLD = 9
PATIENCE = 30.0


class Stream:
    native = 1

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Device:
    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}

    def use(self) -> None:
        pass

    def stream(self) -> Stream:
        return Stream()

    def allocate(self, nbytes: int) -> Memory:
        block = np.zeros(nbytes, np.uint8)
        self.blocks[block.ctypes.data] = block
        return Memory(block.ctypes.data, nbytes)

    def release(self, memory: Memory) -> None:
        del self.blocks[memory.address]


class World:
    """Libraries of several ranks in one process.

    Args:
        size: Ranks.
    """

    def __init__(self, size: int, timeout: float = PATIENCE) -> None:
        self.size = size
        self.binding = HostNccl()
        self.devices: list[Any] = [Device() for _ in range(size)]
        stream: Any = Stream()
        self.stream = stream
        self.libraries = [CudaCollective(device, stream, Nccl(self.binding)) for device in self.devices]
        self.calls = 0
        offers = tuple(
            lib.offer(stream, Offer(world=WORLD, rank=r, size=size), WORLD).answer()
            for r, lib in enumerate(self.libraries)
        )
        assert [len(offer) for offer in offers] == [128, *[0] * (size - 1)]
        for lib in self.libraries:
            lib.join(stream, Join(world=WORLD, offers=offers, timeout=timeout), WORLD)
        look = Look(world=WORLD)
        self.until(lambda: all(lib.look(stream, look, WORLD).answer() == "ready" for lib in self.libraries))

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what threads of the members bring about."""
        tick = threading.Event()
        for _ in range(int(PATIENCE * 100)):
            if condition():
                return
            tick.wait(0.01)
        raise AssertionError("it did not come")

    def member(self, rank: int) -> CudaMember:
        found = self.libraries[rank].find(WORLD)
        assert isinstance(found, CudaMember)
        return found

    def run(self, cases: list[lab.RankCase], factors: list[Any] | None = None) -> list[Any]:
        """Run a part on each rank; the arrays that they wrote, None for a rank without."""
        self.calls += 1
        written: list[Any] = []
        for r, (case, lib) in enumerate(zip(cases, self.libraries, strict=True)):
            arrays = [case.source, case.both, None if case.want is None or case.target is None else case.want * 0]
            keep = [None if a is None else np.ascontiguousarray(a) for a in arrays]
            ins, inouts, outs = [() if a is None else (Placeholder(_layout(a)),) for a in keep]
            step = case.step if factors is None else Step(case.step.kind, source=0, target=0, factor=0)
            numbers = () if factors is None else (factors[r],)
            op = Run(
                part=Part(r, self.size, (step,) if lab.takes_part(case) else ()),
                world=WORLD,
                call=self.calls,
                after=self.calls - 1,
                ins=ins,
                inouts=inouts,
                outs=outs,
                factors=numbers,
            )
            addresses = [[] if a is None else [a.ctypes.data] for a in keep]
            plan = lib.plan_run(op)
            status = lib.run(self.stream, plan, WORLD, self.calls, self.calls - 1, *addresses, numbers)  # type: ignore[arg-type]
            status.check(b"")
            written.append(keep[1] if keep[1] is not None else keep[2])
        assert self.binding.grouped == 0
        return written

    def close(self) -> None:
        for lib in self.libraries:
            lib.close()
        assert all(comm.aborted and not comm.ops for comm in self.binding.comms)
        assert not any(device.blocks for device in self.devices)


def _layout(array: Any) -> Any:
    return layout_of(next(d for d in DTYPES.values() if d.np == array.dtype), array.shape)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_collective_of_every_dtype_in_place_and_not(size: int) -> None:
    world = World(size)
    for kind, in_place in itertools.product(lab.KINDS, (False, True)):
        if in_place and kind not in lab.IN_PLACE:
            continue
        ops = lab.OPS if kind in lab.REDUCTIONS else ("sum",)
        for dtype, op in itertools.product(("f32", "bf16", "i64", "f8_e4m3", "u8"), ops):
            cases = lab.cases(kind, size, dtype, op=op, in_place=in_place)
            for case, got in zip(cases, world.run(cases), strict=True):
                if case.want is not None:
                    lab.close(got, case.want, case.step, size)
    moved = lab.cases("all_to_all", size, "c64")  # NCCL does not know it
    for case, got in zip(moved, world.run(moved), strict=True):
        lab.close(got, case.want, case.step, size)  # type: ignore[arg-type]
    world.close()


def test_a_factor_is_told_to_nccl_and_taken_back() -> None:
    world = World(2)
    cases = lab.cases("all_reduce", 2, "f64")
    want = lab.reduced("sum", [c.source for c in cases if c.source is not None], [2.0, 0.5])
    for got in world.run(cases, [2.0, 0.5]):
        np.testing.assert_allclose(got, want)
    world.close()


def test_a_call_that_nccl_refuses_ends_the_world_here() -> None:
    world = World(2)
    world.binding.fails = 5
    with pytest.raises(LibraryError, match=r"NCCL, all_reduce: ncclResult 5") as caught:
        world.run(lab.cases("all_reduce", 2, "f32"))
    assert (caught.value.lib, caught.value.code) == ("nccl", 5)
    with pytest.raises(WorldLost, match="rank 0: NCCL, all_reduce"):
        world.run(lab.cases("all_reduce", 2, "f32"))
    world.close()


def test_what_nccl_reports_later_and_what_hangs_end_the_world() -> None:
    world = World(2)
    status = world.member(0).enqueued()
    comm = world.member(0).comm
    comm.error = 6
    world.until(lambda: world.member(0).lost is not None)
    with pytest.raises(WorldLost, match="NCCL reports ncclResult 6"):
        status.check(b"")
    world.until(lambda: comm.aborted)
    world.close()

    stuck = World(1, timeout=0.05)
    stuck.libraries[0]._stream.query = lambda: False  # type: ignore[method-assign]
    status = stuck.member(0).enqueued()
    stuck.until(lambda: stuck.member(0).lost is not None)
    with pytest.raises(WorldLost, match=r"rank 0 waited 0\.05 s for the others"):
        status.check(b"")
    stuck.close()


def test_leaving_fails_what_runs_and_names_the_lost_rank() -> None:
    world = World(2)
    status = world.member(1).enqueued()
    leave = Leave(world=WORLD, lost=0, reason="rank 0 was lost", formation=4)
    assert world.libraries[1].leave(world.stream, leave, WORLD).answer()
    with pytest.raises(WorldLost, match="rank 0 was lost") as caught:
        status.check(b"")
    assert (caught.value.rank, caught.value.formation) == (0, 4)
    assert not world.libraries[1].leave(world.stream, leave, WORLD).answer()
    world.close()


class Unanswered(HostNccl):
    """A binding whose groups wait for ranks that do not come, until the communicator is aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()
        self.ended = threading.Event()

    def group_end(self) -> None:
        super().group_end()
        self.waiting.set()
        assert self.ended.wait(PATIENCE)
        raise NCCLError(6)

    def comm_abort(self, comm: Any) -> None:
        super().comm_abort(comm)
        self.ended.set()


def test_a_rank_that_is_lost_while_pairs_connect_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "STUCK", 0.01)
    binding, device, stream = Unanswered(), Device(), Stream()
    library = CudaCollective(device, stream, Nccl(binding))  # type: ignore[arg-type]
    offer = library.offer(stream, Offer(world=WORLD, rank=0, size=1), WORLD).answer()  # type: ignore[arg-type]
    library.join(stream, Join(world=WORLD, offers=(offer,), timeout=PATIENCE), WORLD)  # type: ignore[arg-type]
    one = library.find(WORLD)
    assert isinstance(one, CudaMember)
    assert binding.waiting.wait(PATIENCE)
    end_members(WORLD, 0, "rank 0 is gone", 2)  # on any thread
    assert binding.ended.wait(PATIENCE)
    one.wait_end()
    assert one.ended
    with pytest.raises(WorldLost, match="rank 0 is gone"):
        one.check()
    # What it connected with is kept for the next: memory is freed only when no kernel runs.
    blocks = dict(device.blocks)
    library.offer(stream, Offer(world=WORLD + 1, rank=0, size=1), WORLD + 1)  # type: ignore[arg-type]
    assert device.blocks == blocks
    assert library.find(WORLD + 1).setup is one.setup  # type: ignore[attr-defined]
    library.close()
    assert not device.blocks
