"""The helper: one job after the other, its ends handed back in order, its steps announced."""

import threading

from callboard.device.host.context.preparing import Helper

PATIENCE = 20.0


def test_jobs_run_in_order_elsewhere_and_end_on_the_calling_thread() -> None:
    log: list[object] = []
    woken = threading.Semaphore(0)
    helper = Helper(lambda: log.append("enter"), lambda what: log.append(("busy", what)), woken.release)
    error = ZeroDivisionError("no")
    threads: list[int] = []

    def good() -> None:
        threads.append(threading.get_ident())

    def bad() -> None:
        raise error

    ended: list[tuple[str, BaseException | None, int]] = []
    for name, job in (("good", good), ("bad", bad)):
        helper.run(name, job, lambda e, name=name: ended.append((name, e, threading.get_ident())))
    for _ in range(2):
        assert woken.acquire(timeout=PATIENCE)
    assert not ended  # until somebody finishes them
    helper.finish()
    here = threading.get_ident()
    assert ended == [("good", None, here), ("bad", error, here)]
    assert threads != [here]
    assert log == [("busy", "good"), "enter", ("busy", None), ("busy", "bad"), ("busy", None)]
    helper.close()


def test_an_end_may_ask_for_another_job() -> None:
    woken = threading.Semaphore(0)
    helper = Helper(lambda: None, lambda what: None, woken.release)
    ended: list[str] = []

    def first(_: BaseException | None) -> None:
        ended.append("first")
        helper.run("second", lambda: None, lambda _: ended.append("second"))

    helper.run("first", lambda: None, first)
    while len(ended) < 2:
        assert woken.acquire(timeout=PATIENCE)
        helper.finish()
    assert ended == ["first", "second"]
    helper.close()


def test_a_failed_entry_is_the_jobs_error_and_is_tried_again() -> None:
    woken = threading.Semaphore(0)
    entries = [OSError("not yet"), None]

    def enter() -> None:
        error = entries.pop(0)
        if error is not None:
            raise error

    helper = Helper(enter, lambda what: None, woken.release)
    ended: list[BaseException | None] = []
    for _ in range(2):
        helper.run("job", lambda: None, ended.append)
        assert woken.acquire(timeout=PATIENCE)
    helper.finish()
    assert [type(e) for e in ended] == [OSError, type(None)]
    helper.close()


def test_a_closed_helper_starts_nothing() -> None:
    """What is settled while a context closes may ask for another job; a thread for it would stay for good."""
    before = threading.active_count()
    helper = Helper(lambda: None, lambda what: None, lambda: None)
    helper.close()
    helper.run("late", lambda: None, lambda error: None)
    assert (helper.jobs, threading.active_count()) == (0, before)
