"""Collectives of a world of one rank, on every backend; those of several ranks are in tests/multi_device."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.conformance import collective_lab as lab

from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable, LibraryError, ShapeError, UnsupportedOp, WorldLost
from callboard.kernel.collective import Join, Leave, Look, Offer, Part, Run, Step

numbers = itertools.count(1 << 40)
PATIENCE = 60.0


class Rank:
    """Rank 0 of a world of one."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.world = next(numbers)
        self.call = 0
        offer = session.submit(Offer(world=self.world, rank=0, size=1))
        state = session.submit(Join(world=self.world, offers=(offer,)))
        until = time.monotonic() + PATIENCE
        while state == "joining" and time.monotonic() < until:
            state = session.submit(Look(world=self.world))
        assert state == "ready"

    def run(self, *steps: Step, factors: tuple[Any, ...] = (), outs: tuple[Any, ...] | None = (), **arrays: Any) -> Any:
        makes = arrays.pop("makes", ())
        self.call += 1
        part = Part(0, 1, steps, makes)
        return self.session.submit(
            Run(part=part, world=self.world, call=self.call, after=self.call - 1, outs=outs, factors=factors, **arrays)
        )

    def leave(self, reason: str = "") -> bool:
        left: bool = self.session.submit(Leave(world=self.world, reason=reason))
        return left


@pytest.fixture
def rank(session: Any) -> Iterator[Rank]:
    try:
        made = Rank(session)
    except BackendUnavailable as e:
        pytest.skip(f"collectives cannot be used: {e}")
    yield made
    made.leave()


@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in-place"])
@pytest.mark.parametrize("kind", lab.KINDS)
def test_a_world_of_one_rank_reduces_and_moves_to_itself(rank: Rank, kind: str, in_place: bool) -> None:
    if kind == "send" or (in_place and kind not in lab.IN_PLACE):
        return  # there is no other rank, or it is refused (below)
    if kind == "barrier":
        rank.run(Step("barrier"))
        return
    moved = () if kind in lab.REDUCTIONS else ("bool", "c64", "i16", "f4_e2m1")
    for dtype, op in itertools.product((*lab.DTYPE_NAMES, *moved), lab.OPS if kind in lab.REDUCTIONS else ("sum",)):
        (case,) = lab.cases(kind, 1, dtype, op=op, in_place=in_place)
        given = {
            "ins": () if case.source is None else (rank.session.put(case.source),),
            "inouts": () if case.both is None else (rank.session.put(case.both),),
        }
        assert case.want is not None
        outs = () if case.target is None else (rank.session.empty(case.target, dtype),)
        rank.run(case.step, outs=outs, **given)
        got = rank.session.get((*outs, *given["inouts"])[0])
        assert got.dtype == DTYPES[dtype].np
        lab.close(got, case.want, case.step, 1)


@pytest.mark.parametrize("dtype", lab.DTYPE_NAMES)
def test_a_factor_is_a_number_or_a_0_d_array(rank: Rank, dtype: str) -> None:
    x = lab.numbers(dtype, (5, 3), seed=1)
    for factor in (2, rank.session.put(np.asarray(2).astype(x.dtype))):
        out = rank.session.empty((5, 3), dtype)
        step = Step("all_reduce", source=0, target=0, factor=0)
        if dtype.startswith("f8") and rank.session.backend.name != "cpu":
            with pytest.raises(UnsupportedOp, match=r"does not scale f8_.* in a world of one rank"):
                rank.run(step, ins=(rank.session.put(x),), outs=(out,), factors=(factor,))
            rank.call -= 1
            continue
        rank.run(step, ins=(rank.session.put(x),), outs=(out,), factors=(factor,))
        lab.close(rank.session.get(out), lab.reduced("sum", [x], [2]), step, 1)


def test_the_steps_of_a_group_are_done_together(rank: Rank) -> None:
    x, y = np.arange(6.0).reshape(3, 2), np.arange(4, dtype=np.int32)
    outs = rank.session.empty((3, 2), "f64"), rank.session.empty((4,), "i32")
    rank.run(
        Step("all_reduce", "max", source=0, target=0),
        Step("all_to_all", source=1, target=1),
        Step("barrier"),
        ins=(rank.session.put(x), rank.session.put(y)),
        outs=outs,
    )
    np.testing.assert_array_equal(rank.session.get(outs[0]), x)
    np.testing.assert_array_equal(rank.session.get(outs[1]), y)


def test_what_names_no_world_or_comes_out_of_order_is_refused(rank: Rank) -> None:
    session = rank.session
    barrier = Part(0, 1, (Step("barrier"),))
    with pytest.raises(WorldLost, match="is not a rank of world 7"):
        session.submit(Run(part=barrier, world=7, call=1, after=0, outs=()))
    with pytest.raises(LibraryError, match="has been offered"):
        session.submit(Offer(world=rank.world, rank=0, size=1))
    with pytest.raises(WorldLost, match="call 5 came behind call 0, not 3, which was refused"):
        session.submit(Run(part=barrier, world=rank.world, call=5, after=3, outs=()))
    with pytest.raises(WorldLost, match="call 5 came behind"):  # it has ended
        session.submit(Run(part=barrier, world=rank.world, call=1, after=0, outs=()))
    assert rank.leave()
    assert not rank.leave()
    again = Rank(session)
    again.run(Step("barrier"))
    again.leave()


@pytest.mark.parametrize(
    "step, text",
    [
        (Step("all_reduce", source=0), r"an array to be received is missing"),
        (Step("barrier", source=0), r"an array to be sent is given, and not used"),
        (Step("all_reduce", source=0, target=1), r"target is 1; there are 1 such arrays"),
        (Step("reduce", root=1, source=0, target=0), r"root or peer is 1; ranks are 0 to 0"),
        (Step("all_gather", source=0, target=0), r"6 elements are sent and 8 received; they do not fit 1 ranks"),
        (Step("all_to_all_v", source=0, target=0), r"counts has 0 numbers; it must have 1 x 1"),
        (Step("all_to_all", both=0), r"it cannot be done in place"),
        (Step("all_reduce", source=1, target=0), r"dtype c64 cannot be reduced"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_at_the_call(session: Any, step: Step, text: str) -> None:
    x = session.put(np.zeros((3, 2), np.float32))
    with pytest.raises(ShapeError, match=text):
        session.submit(
            Run(
                part=Part(0, 1, (step,)),
                world=1,
                call=1,
                after=0,
                ins=(x, session.put(np.zeros(8, np.complex64))),
                inouts=(session.put(np.zeros(4, np.float32)),),
                outs=(session.empty(8, "c64" if step.source == 1 else "f32"),),
            )
        )
