"""The helm comes back to a thread that has just passed it, before that thread has seen that it is gone."""

import asyncio
import threading
from typing import Any

import pytest
from tests.device.residents.lab import Probe
from tests.device.residents.test_leading import leading

import callboard as cb
from callboard.device.host import helm
from callboard.device.host.context.serve import ContextHost
from callboard.device.host.helm import Helm
from callboard.device.host.residents.actors import HostActors
from callboard.device.host.residents.thread import thread

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0


def named() -> str:
    return threading.current_thread().name


async def test_an_actor_that_gets_the_helm_back_takes_the_call_that_comes_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    armed = threading.Event()
    passed, went_on = threading.Event(), threading.Event()
    dispatch, receive, lead = HostActors.dispatch, ContextHost.receive, thread.lead

    def dispatched(self: HostActors) -> None:
        """What has been passed has calls by then: the passing thread has not looked since."""
        assert self.helm is not None
        terms = self.helm.terms
        dispatch(self)
        if not armed.is_set() or passed.is_set() or self.helm.terms == terms:
            return
        if named() == "callboard-resident-one":  # to the other
            assert passed.wait(BOUND)
        elif named() == "callboard-resident-two":  # and back
            passed.set()
            assert went_on.wait(BOUND)

    def received(self: ContextHost, *, wait: bool) -> Any:
        if passed.is_set() and named() == "callboard-resident-one":
            went_on.set()
        return receive(self, wait=wait)

    def led(actor: Any, *arguments: Any) -> Any:
        try:
            return lead(actor, *arguments)
        finally:
            if passed.is_set() and actor.name == "one":
                went_on.set()

    monkeypatch.setattr(thread, "SHORT", BOUND)  # a busy machine makes no call a long one
    monkeypatch.setattr(helm, "LIMIT", 0.9)
    monkeypatch.setattr(HostActors, "dispatch", dispatched)
    monkeypatch.setattr(ContextHost, "receive", received)
    monkeypatch.setattr(thread, "lead", led)
    async with cb.device("cpu", isolation="thread", close_timeout=5.0) as dev:
        one, two = dev.actor_of(cb.Props(Probe), name="one"), dev.actor_of(cb.Props(Probe), name="two")
        await leading(two, one)
        armed.set()
        async with asyncio.timeout(BOUND):
            assert await two.call(Probe.add, 1) == 1
            assert await one.call(Probe.add, 1) == 1
        assert passed.is_set()


async def test_the_hosts_own_thread_notes_that_it_gets_the_helm_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back = threading.Event()
    passes: list[str] = []
    waits: list[str] = []
    dispatch, wait, give_back = HostActors.dispatch, Helm.wait, Helm.give_back

    def dispatched(self: HostActors) -> None:
        by_host = named() == "callboard-host-cpu:0/active"
        dispatch(self)
        if by_host and self.helm is not None and self.helm.terms > len(passes):
            passes.append(named())
            assert given_back.wait(BOUND)

    def waited(self: Helm) -> None:
        waits.append(named())
        wait(self)

    def gave_back(self: Helm, failure: BaseException | None = None) -> None:
        give_back(self, failure)
        given_back.set()

    monkeypatch.setattr(HostActors, "dispatch", dispatched)
    monkeypatch.setattr(Helm, "wait", waited)
    monkeypatch.setattr(Helm, "give_back", gave_back)
    async with cb.device("cpu", isolation="thread", close_timeout=5.0) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        async with asyncio.timeout(BOUND):
            while not passes:
                assert await probe.call(Probe.add, 0) == 0
            with pytest.raises(ValueError, match="no"):
                await probe.call(Probe.fail, "value")
            assert await probe.call(Probe.add, 1) == 1
    assert len(waits) == len(passes)
