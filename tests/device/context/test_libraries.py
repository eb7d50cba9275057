"""Opening a library: announced, because it may import for long, and without a trace where it fails."""

from typing import Any

import pytest
from tests.device.context.hosting import Hosted, vector
from tests.device.steps import Left, StepsBackend

from callboard.core.errors import BackendUnavailable
from callboard.core.library import Library
from callboard.kernel.memory import Empty

TRIES = 5


class Opening(StepsBackend):
    """Its library ``left`` is there, or is not; ``open_at`` are the steps that were announced when it was made."""

    def __init__(self, missing: bool = False) -> None:
        self.missing = missing
        self.announced: list[str | None] = []
        self.open_at: list[str | None] = []

    def libraries(self) -> dict[str, type[Library]]:
        backend, found = self, dict(super().libraries())

        class Made(found["left"]):  # type: ignore[misc,name-defined]
            def __init__(self, *given: Any) -> None:
                backend.open_at = list(backend.announced)
                if backend.missing:
                    raise BackendUnavailable("no such package")
                super().__init__(*given)

        return {**found, "left": Made}


def hosted(backend: Opening, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setattr("tests.device.context.hosting.Kept.busy", lambda _, step: backend.announced.append(step))
    return Hosted(backend)


def test_it_is_announced_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Opening()
    host = hosted(backend, monkeypatch)
    _, (x,) = host.call(Empty(shape=(4,), dtype="f32"))
    backend.announced.clear()
    for n in range(3):
        host.call(Left(x=x, n=n))
    host.finish()
    assert backend.open_at == ["opening left"]
    assert backend.announced == ["opening left", None]
    host.close()


def test_a_library_that_is_not_there_leaves_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Opening(missing=True)
    host = hosted(backend, monkeypatch)
    _, (x,) = host.call(Empty(shape=vector().shape, dtype="f32"))
    host.finish()
    before = len(host.context.streams.tracks)
    ops = [host.call(Left(x=x, n=n))[0] for n in range(TRIES)]
    host.finish()
    assert [host.failed[op].error for op in ops] == ["BackendUnavailable"] * TRIES
    assert len(host.context.streams.tracks) == before
    assert backend.announced[-2:] == ["opening left", None]
    host.close()
