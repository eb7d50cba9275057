"""Opening a library leaves nothing behind where it fails."""

from typing import Any

from tests.device.context.hosting import Hosted, vector
from tests.device.steps import Left, StepsBackend

from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library
from callboard.kernel.memory import Empty

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
    before = len(host.context.streams.tracks)
    ops = [host.call(Left(x=x, n=n))[0] for n in range(TRIES)]
    host.finish()
    assert [host.failed[op].error for op in ops] == ["BackendUnavailable"] * TRIES
    assert len(host.context.streams.tracks) == before
    host.close()
