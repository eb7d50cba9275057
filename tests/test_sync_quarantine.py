"""``cb.sync.Quarantine``: calls that block, on the threads that make them."""

import threading
from typing import Any

import pytest
from tests.together import together

import callboard as cb
from callboard.actors.clock import ManualClock
from callboard.core.errors import Suspect
from callboard.device.client.line.port import request_key

LIMIT = 30.0


class Context:
    """A context that a bad call kills; it notes by which key, and on which thread, each call ran."""

    def __init__(self, name: str = "gpu") -> None:
        self.name = name
        self.generation = 0
        self.calls: list[tuple[str | None, int]] = []

    def op(self, kills: bool = False) -> str:
        key = request_key.get()
        self.calls.append((key, threading.get_ident()))
        if kills:
            error = cb.ContextPoisoned("lost", [Suspect(self.name, "op", key, "a.py:1")])
            error.device, error.generation = self.name, self.generation
            self.generation += 1
            raise error
        return "value"


def test_a_value_an_error_and_a_request_of_death() -> None:
    context, spare = Context(), Context("spare")
    with cb.sync.Quarantine(context, spare=spare, hold=60.0, clock=ManualClock()) as quarantine:
        assert quarantine.run("good", Context.op) == "value"
        with pytest.raises(ZeroDivisionError):
            quarantine.run("odd", lambda _: str(1 // 0))
        with pytest.raises(cb.Quarantined):
            quarantine.run("bad", lambda target: target.op(kills=True))
        assert (context.generation, spare.generation) == (2, 1)
        with pytest.raises(cb.Quarantined):
            quarantine.run("bad", Context.op)
        stats = quarantine.stats()
        assert (stats.completed, stats.failed, stats.quarantined, stats.held) == (1, 1, 2, {"bad": 60.0})
        assert quarantine.pardon("bad")
        assert quarantine.run("bad", Context.op) == "value"
    assert {thread for _, thread in (*context.calls, *spare.calls)} == {threading.get_ident()}
    assert [key for key, _ in context.calls] == ["good", "bad", "bad", "bad"]
    with pytest.raises(cb.DeviceStopped):
        quarantine.run("good", Context.op)


def test_many_threads() -> None:
    context = Context()
    with cb.sync.Quarantine(context) as quarantine:

        def run(thread: int) -> list[str]:
            return [quarantine.run(f"r{thread}.{n}", Context.op) for n in range(5)]

        assert together(run, [(thread,) for thread in range(8)], LIMIT) == [["value"] * 5] * 8
        assert quarantine.stats().completed == 40


def test_a_blocking_device() -> None:
    with cb.sync.device("cpu", isolation="thread") as gpu, cb.sync.Quarantine(gpu) as quarantine:
        found: Any = quarantine.run("user 7", lambda device: device.put([1.0, 2.0]).get())
        assert found.tolist() == [1.0, 2.0]


def test_ctrl_c_in_a_call_gives_the_turn_back() -> None:
    def interrupted(_: Context) -> str:
        raise KeyboardInterrupt

    with cb.sync.Quarantine(Context()) as quarantine:
        with pytest.raises(KeyboardInterrupt):
            quarantine.run("a", interrupted)
        assert quarantine.run("b", Context.op) == "value"
        assert quarantine.stats().running == 0
