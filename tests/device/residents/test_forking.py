"""Processes that a method of a resident actor forks: one that comes back from the method is ended, and says so."""

import os
import sys
from typing import Any

import pytest

import callboard as cb

pytestmark = [
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here"),
]

LIMIT = 30.0


class Forking(cb.ResidentActor):
    def fork(self, how: str) -> tuple[int, str]:
        """The status with which a forked process ended, and what it said."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            sys.stderr = os.fdopen(writing, "w")
            if how == "raise":
                raise ValueError("in the copy")
            if how == "exit":
                sys.exit(7)
            if how == "leave":
                os._exit(3)
            return 0, "copy"
        os.close(writing)
        _, status = os.waitpid(pid, 0)
        with os.fdopen(reading) as said:
            return os.waitstatus_to_exitcode(status), said.read()

    def echo(self, x: int) -> int:
        return x


class AsyncForking(Forking):
    async def later(self, how: str) -> tuple[int, str]:
        return self.fork(how)


@pytest.mark.few(1)
@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("cls", [Forking, AsyncForking])
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
async def test_a_forked_process_that_comes_back_from_a_method_is_ended(cls: type[Forking], isolation: Any) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None) as dev:
        actor: Any = dev.actor_of(cb.Props(cls), name="forking").with_timeout(LIMIT)
        methods: list[Any] = [Forking.fork] if cls is Forking else [Forking.fork, AsyncForking.later]
        for method in methods:
            for how, status, says in (
                ("return", 1, "came back from it and was ended; end such a process with os._exit(): returned"),
                ("raise", 1, "ValueError: in the copy"),
                ("exit", 7, ""),
                ("leave", 3, ""),
            ):
                found, said = await actor.call(method, how)
                assert found == status
                assert says in said
                assert bool(said) == bool(says)
                assert [await actor.call(Forking.echo, n) for n in range(20)] == list(range(20))
        assert (await dev.stats()).restarts == 0
