"""The restart budget, without waiting."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.core.errors import AccelError, ContextPoisoned, Unrecoverable
from callboard.device.supervision.lifecycle import Event
from callboard.device.supervision.supervisor import DeviceSupervisor


def test_three_losses_within_a_minute_are_allowed_and_the_fourth_stops() -> None:
    supervisor = DeviceSupervisor()
    poisoned = ContextPoisoned("x")
    assert [supervisor.on_loss(poisoned, t) for t in (0.0, 1.0, 2.0)] == [Event.CONTEXT_LOST] * 3
    assert supervisor.on_loss(poisoned, 59.9) is Event.UNRECOVERABLE


def test_the_window_slides() -> None:
    supervisor = DeviceSupervisor()
    for t in range(0, 600, 30):
        assert supervisor.on_loss(ContextPoisoned("x"), float(t)) is Event.CONTEXT_LOST


def test_half_open_keeps_the_device_alive() -> None:
    supervisor = DeviceSupervisor(max_restarts=0, on_exhausted="half_open")
    assert supervisor.on_loss(ContextPoisoned("x"), 0.0) is Event.BUDGET_SPENT


def guarded() -> ContextPoisoned:
    error = ContextPoisoned("x")
    error.guarded = True
    return error


def test_losses_under_a_quarantine_do_not_count_and_beyond_sixty_a_minute_they_cost_a_pause() -> None:
    supervisor = DeviceSupervisor(max_restarts=1)
    assert [supervisor.on_loss(guarded(), t / 2) for t in range(60)] == [Event.CONTEXT_LOST] * 60
    assert supervisor.on_loss(guarded(), 30.0) is Event.BUDGET_SPENT
    assert not supervisor.exhausted
    assert supervisor.on_loss(guarded(), 60.0) is Event.CONTEXT_LOST
    assert supervisor.on_loss(ContextPoisoned("x"), 60.0) is Event.CONTEXT_LOST
    assert supervisor.on_loss(ContextPoisoned("x"), 60.0) is Event.UNRECOVERABLE


def test_pauses_of_a_half_open_device_double_up_to_the_window_and_begin_again_after_a_quiet_time() -> None:
    supervisor, now, pauses = DeviceSupervisor(max_restarts=0, on_exhausted="half_open", within=20.0), 0.0, []
    for _ in range(8):
        pauses.append(supervisor.pause(now))
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 20, 20, 20]
    assert supervisor.pause(now + 120.0) == 1


def test_no_limit() -> None:
    supervisor = DeviceSupervisor(max_restarts=None)
    assert all(supervisor.on_loss(ContextPoisoned("x"), 0.0) is Event.CONTEXT_LOST for _ in range(1000))


def test_unrecoverable_stops_at_once() -> None:
    assert DeviceSupervisor(max_restarts=None).on_loss(Unrecoverable("ECC"), 0.0) is Event.UNRECOVERABLE


@given(
    st.lists(st.floats(0, 500, allow_nan=False), max_size=40).map(sorted),
    st.integers(0, 4),
    st.floats(1, 100, allow_nan=False),
)
def test_never_more_than_allowed_in_any_window(times: list[float], limit: int, within: float) -> None:
    supervisor = DeviceSupervisor(limit, within)
    error: AccelError = ContextPoisoned("x")
    allowed = [t for t in times if supervisor.on_loss(error, t) is Event.CONTEXT_LOST]
    for i, start in enumerate(allowed):
        assert sum(t - start < within for t in allowed[i:]) <= limit
