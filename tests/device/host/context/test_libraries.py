"""Libraries in a host: one that cannot be opened leaves nothing behind; what would hold the thread goes elsewhere."""

import threading
from typing import Any, ClassVar

from tests.device.host.context.hosting import Hosted, vector
from tests.device.steps import Left, LeftLibrary, StepsBackend

from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library, WouldBlock, prepares
from callboard.kernel.memory import Empty, Fill

TRIES = 5


class Missing(Library):
    """The library ``left``, whose package is not there."""

    launch_table = StepsBackend().libraries()["left"].launch_table

    def __init__(self, *given: Any) -> None:
        raise BackendUnavailable("no such package")


class MissingBackend(StepsBackend):
    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "left": Missing}


def test_a_library_that_is_not_there_leaves_no_stream() -> None:
    host = Hosted(MissingBackend())
    _, (x,) = host.call(Empty(shape=vector().shape, dtype="f32"))
    host.finish()
    before = len(host.context.streams.timelines)
    ops = [host.call(Left(x=x, n=n))[0] for n in range(TRIES)]
    host.finish()
    assert [host.failed[op].error for op in ops] == ["BackendUnavailable"] * TRIES
    assert len(host.context.streams.timelines) == before
    host.close()


class Compiling(LeftLibrary):
    """Its plans are made at once, but for those that have to be compiled: those of an odd ``n``."""

    outputs: ClassVar[list[tuple[int, int]]] = []

    @prepares(Left, inline=True)
    def plan(self, op: Left) -> Left:
        here = threading.get_ident()
        if op.n % 2 and self.device.non_blocking_thread == here:
            raise WouldBlock("it has to be compiled")
        self.outputs.append((op.n, here))
        return op


class CompilingBackend(StepsBackend):
    def libraries(self) -> dict[str, type[Library]]:
        return {**super().libraries(), "left": Compiling}


def test_an_inline_prepare_that_would_block_is_done_by_the_helper() -> None:
    Compiling.outputs.clear()
    host = Hosted(CompilingBackend())
    _, (x,) = host.call(Empty(shape=vector().shape, dtype="f32"))
    host.call(Fill(out=x, fill_value=1.0))
    results = {n: host.call(Left(x=x, n=n))[1][0] for n in (2, 3, 4)}
    host.finish(until=lambda: not len(host.context.parking) and not host.context.advance())
    for n, result in results.items():
        assert host.array(result).tolist() == [1.0 + n] * 4
    here = threading.get_ident()
    assert {n: thread == here for n, thread in Compiling.outputs} == {2: True, 3: False, 4: True}
    host.close()
