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
