"""Helm: the thread that serves a host, and its handover."""

import ctypes
import errno
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.device.host import helm as module
from callboard.device.host.helm import Helm

TIME = 20.0
"""Seconds after which a wait has failed."""


class Actor:
    """Stands for a resident actor."""


def nothing() -> None:
    """There are no calls to hand over."""


class Waiting:
    """A thread that waits until it is to serve, as the host's own does."""

    def __init__(self, helm: Helm) -> None:
        self.raised: BaseException | None = None
        self._helm = helm
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._helm.wait()
        except BaseException as e:
            self.raised = e

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float = TIME) -> None:
        self._thread.join(seconds)

    def serves(self) -> None:
        """It is to serve now."""
        self.join()
        assert not self.waits


def readable(descriptor: int, seconds: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1e3))


@pytest.fixture
def helm() -> Iterator[Helm]:
    made = Helm()
    yield made
    made.close()


@pytest.fixture
def patient(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> Helm:
    """One that no call takes too long for, where a thread waits: this one may stand still in the middle of a call."""
    monkeypatch.setattr(module, "LIMIT", TIME)
    monkeypatch.setattr(helm._timer, "set", lambda seconds: None)
    return helm


def test_the_hosts_own_thread_has_it_first(helm: Helm) -> None:
    assert helm.holder is None
    helm.wait()  # returns at once


def test_it_is_passed_to_an_actor_and_given_back(patient: Helm) -> None:
    for actor in (Actor(), Actor()):
        patient.pass_to(actor, nothing)
        assert patient.holder is actor
        waiting = Waiting(patient)
        patient.begin()
        assert patient.end(actor)
        patient.give_back()
        waiting.serves()
        assert waiting.raised is None
        assert patient.holder is None


def test_an_actor_does_not_serve_before_it_has_all_calls_that_came_with_it(helm: Helm) -> None:
    """It would receive later calls and put them before those, which the passing thread is still handing over."""
    order = []
    begins = threading.Event()

    def serve() -> None:
        begins.set()
        order.append(helm.enter())

    actor = threading.Thread(target=serve, daemon=True)

    def hand_over() -> None:
        actor.start()  # as with its first call
        begins.wait(TIME)
        actor.join(0.2)  # time to go wrong
        order.append(0)

    helm.pass_to(Actor(), hand_over)
    actor.join(TIME)
    assert order == [0, helm.terms]


def test_an_actor_passes_it_to_another(patient: Helm) -> None:
    first, second = Actor(), Actor()
    patient.pass_to(first, nothing)
    waiting = Waiting(patient)
    patient.begin()
    assert patient.end(first)
    patient.pass_to(second, nothing)
    patient.begin()
    assert patient.end(second)
    patient.give_back()
    waiting.serves()


def test_a_timer_that_goes_off_as_the_last_one_is_cleared_does_not_leave_the_next_call_without(
    helm: Helm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's own thread may stand still before it forgets that the timer went off, and a call come and go then."""
    actor, clear = Actor(), helm._timer.clear
    helm.pass_to(actor, nothing)

    def late() -> None:
        helm.begin()
        assert readable(helm._timer.descriptor, TIME)
        assert helm.end(actor)
        clear()

    monkeypatch.setattr(helm._timer, "clear", late)
    assert not helm._returned()
    monkeypatch.undo()
    helm.begin()
    assert readable(helm._timer.descriptor, TIME), "no thread would take the place of a call that does not end"
    Waiting(helm).serves()
    assert helm.holder is None


def test_what_serving_raised_is_raised_on_the_hosts_own_thread_once(helm: Helm) -> None:
    actor = Actor()
    helm.pass_to(actor, nothing)
    waiting = Waiting(helm)
    failure = OSError("the line is cut")
    helm.give_back(failure)
    waiting.serves()
    assert waiting.raised is failure
    helm.wait()


def test_one_that_leaves_gives_it_back_and_is_never_given_it_again(helm: Helm) -> None:
    actor, other = Actor(), Actor()
    helm.pass_to(actor, nothing)
    waiting = Waiting(helm)
    helm.leave(actor)
    waiting.serves()
    helm.pass_to(actor, nothing)
    assert helm.holder is None
    helm.pass_to(other, nothing)
    helm.leave(actor)
    assert helm.holder is other


def test_it_keeps_no_actor_alive_that_has_left(helm: Helm) -> None:
    actor = Actor()
    helm.leave(actor)
    assert len(helm._gone) == 1
    del actor
    assert len(helm._gone) == 0


def test_a_call_that_takes_too_long_loses_it_and_hears_of_that_at_its_end(helm: Helm) -> None:
    actor = Actor()
    for _ in range(3):
        helm.pass_to(actor, nothing)
        waiting = Waiting(helm)
        helm.begin()
        waiting.serves()
        assert helm.holder is None
        assert not helm.end(actor)
        assert not helm.end(actor)


def test_the_call_that_begins_just_before_the_timer_goes_off_loses_it_too(helm: Helm) -> None:
    actor = Actor()
    helm.pass_to(actor, nothing)
    helm.begin()
    assert helm.end(actor)
    helm.begin()
    waiting = Waiting(helm)
    waiting.serves()
    assert not helm.end(actor)


def test_one_between_calls_never_loses_it(helm: Helm) -> None:
    actor = Actor()
    helm.pass_to(actor, nothing)
    for _ in range(3):
        helm.begin()
        assert helm.end(actor)
        assert readable(helm._timer.descriptor, TIME)
        assert not helm._returned()
        assert helm.holder is actor
    helm.begin()
    helm.wait()  # the timer is set again
    assert helm.holder is None


def test_the_timer_is_set_once_for_many_calls(helm: Helm, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []
    monkeypatch.setattr(helm._timer, "set", times.append)
    actor = Actor()
    helm.pass_to(actor, nothing)
    for _ in range(1000):
        helm.begin()
        assert helm.end(actor)
    assert times == [module.LIMIT]


def test_a_call_that_begins_while_the_hosts_own_thread_looks_loses_it(
    helm: Helm, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = Actor()
    helm.pass_to(actor, nothing)
    helm.begin()
    last = helm._since + module.LIMIT
    assert helm.end(actor)
    assert readable(helm._timer.descriptor, TIME)  # the next call begins at the last moment before
    looks: list[bool] = []

    def looked_meanwhile() -> float:
        monkeypatch.undo()
        looks.append(helm._returned())
        return last

    monkeypatch.setattr(time, "monotonic", looked_meanwhile)
    helm.begin()
    assert looks == [False]
    assert readable(helm._timer.descriptor, TIME)
    helm.wait()
    assert not helm.end(actor)


def test_what_others_end_is_no_end_of_the_holders_call(helm: Helm) -> None:
    holder, other = Actor(), Actor()
    helm.pass_to(holder, nothing)
    helm.begin()
    assert not helm.end(other)  # it asks for memory in a call on its own thread
    Waiting(helm).serves()
    assert not helm.end(holder)


def test_the_end_of_a_call_that_lost_it_is_no_end_of_the_next_holders_call(helm: Helm) -> None:
    first, second = Actor(), Actor()
    helm.pass_to(first, nothing)
    helm.begin()
    Waiting(helm).serves()
    helm.pass_to(second, nothing)
    assert not helm._returned()  # the call of the first is not that of the second
    helm.begin()
    assert not helm.end(first)
    Waiting(helm).serves()
    assert not helm.end(second)


def test_giving_it_back_leaves_no_bell_that_rings_for_the_next_wait(
    helm: Helm, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring: Callable[[int, int], None] = os.eventfd_write
    seen: list[Waiting] = []

    def late(descriptor: int, value: int) -> None:
        monkeypatch.undo()
        seen.append(Waiting(helm))  # awake just now, because of the timer
        seen[0].join(0.1)
        ring(descriptor, value)

    monkeypatch.setattr(os, "eventfd_write", late)
    helm.pass_to(Actor(), nothing)
    helm.give_back()
    seen[0].serves()
    helm.pass_to(Actor(), nothing)
    assert not readable(helm._bell)  # or the next wait would spin


def test_closing_releases_its_descriptors() -> None:
    helm = Helm()
    descriptors = (helm._timer.descriptor, helm._bell)
    for descriptor in descriptors:
        os.fstat(descriptor)
        assert not os.get_inheritable(descriptor)
    helm.close()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_a_timer_that_cannot_be_made_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def timerfd_create(self, *_: Any) -> int:
            ctypes.set_errno(errno.EMFILE)
            return -1

    monkeypatch.setattr(module, "_libc", Full)
    with pytest.raises(OSError, match="Too many open files"):
        Helm()


class Worker:
    """A thread that does what it is told, one after the other."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            self._answers.put(task())

    def do(self, task: Callable[[], Any]) -> Any:
        self._tasks.put(task)
        return self._answers.get(timeout=TIME)

    def close(self) -> None:
        self._tasks.put(None)
        self._thread.join(TIME)


class Serving(RuleBasedStateMachine):
    """Two actors, each on its thread, and the host's own thread."""

    @initialize()
    def start(self) -> None:
        self.helm = Helm()
        self.threads = [Worker(), Worker()]
        self.host = Worker()
        self.actors = [Actor(), Actor()]
        self.holder: int | None = None
        self.calling = [False, False]

    def teardown(self) -> None:
        for worker in [*self.threads, self.host]:
            worker.close()
        self.helm.close()

    def _pass(self, to: int) -> None:
        by = self.host if self.holder is None else self.threads[self.holder]
        by.do(lambda: self.helm.pass_to(self.actors[to], nothing))
        self.holder = to

    def _begin(self, at: int) -> None:
        self.calling[at] = True
        if self.holder == at:
            self.threads[at].do(self.helm.begin)

    def _end(self, at: int) -> None:
        self.calling[at] = False
        assert self.threads[at].do(lambda: self.helm.end(self.actors[at])) is (self.holder == at)

    @property
    def leads(self) -> bool:
        return self.holder is not None and self.calling[self.holder]

    @precondition(lambda self: not self.leads and not self.calling[0])
    @rule()
    def pass_to_the_first(self) -> None:
        self._pass(0)

    @precondition(lambda self: not self.leads and not self.calling[1])
    @rule()
    def pass_to_the_second(self) -> None:
        self._pass(1)

    @precondition(lambda self: not self.calling[0])
    @rule()
    def first_begins(self) -> None:
        self._begin(0)

    @precondition(lambda self: not self.calling[1])
    @rule()
    def second_begins(self) -> None:
        self._begin(1)

    @precondition(lambda self: self.calling[0])
    @rule()
    def first_ends(self) -> None:
        self._end(0)

    @precondition(lambda self: self.calling[1])
    @rule()
    def second_ends(self) -> None:
        self._end(1)

    @precondition(lambda self: self.leads)
    @rule()
    def take(self) -> None:
        """The holder stays in its call."""
        self.host.do(self.helm.wait)
        self.holder = None

    @precondition(lambda self: self.holder is not None and not self.leads)
    @rule()
    def give_back(self) -> None:
        assert self.holder is not None
        self.threads[self.holder].do(self.helm.give_back)
        self.holder = None
        self.host.do(self.helm.wait)

    @invariant()
    def the_holder_is_who_it_was_passed_to(self) -> None:
        if not self.leads:  # while it is in a call, it may lose it at any time
            assert self.helm.holder is (None if self.holder is None else self.actors[self.holder])
            assert self.host.do(self.helm._returned) is (self.holder is None)
            assert not readable(self.helm._bell)


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
