"""The announced steps of a host: of several threads, and of one within another."""

import threading

from callboard.device.hosts.socketchannel import Pulse


def test_a_step_within_another_leaves_the_outer_one() -> None:
    pulse = Pulse()
    told: list[str] = []
    pulse.changed = lambda: told.append(pulse.steps)
    for step in ("open", "opening blas", None, "opening fft", None, None):
        pulse.step(step)
    assert told == ["open", "open, opening blas", "open", "open, opening fft", "open", ""]


def test_an_end_without_a_beginning_is_none() -> None:
    pulse = Pulse()
    pulse.step(None)
    assert pulse.steps == ""


def test_each_thread_has_its_own() -> None:
    pulse = Pulse()
    pulse.step("open")
    helper = threading.Thread(target=pulse.step, args=("plan",))
    helper.start()
    helper.join()
    assert pulse.steps == "open, plan"
    pulse.step(None)
    assert pulse.steps == "plan"
