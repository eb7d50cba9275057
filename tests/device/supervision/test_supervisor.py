"""The restart budget, without waiting."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors import Directive
from callboard.core.errors import ContextPoisoned, Unrecoverable
from callboard.device.supervision.supervisor import DeviceSupervisor, decided


def directive(
    supervisor: DeviceSupervisor, now: float, error: ContextPoisoned | None = None
) -> tuple[Directive, float]:
    """What follows a loss, and the pause before it."""
    decision = decided(supervisor, "on_context_lost", error or ContextPoisoned("x"), now)
    return decision.directive, decision.pause


RESTART, STOP = (Directive.RESTART, 0.0), (Directive.STOP, 0.0)


def test_three_losses_within_a_minute_are_allowed_and_the_fourth_stops() -> None:
    supervisor = DeviceSupervisor()
    assert [directive(supervisor, t) for t in (0.0, 1.0, 2.0)] == [RESTART] * 3
    assert directive(supervisor, 59.9) == STOP


def test_the_window_slides() -> None:
    supervisor = DeviceSupervisor()
    for t in range(0, 600, 30):
        assert directive(supervisor, float(t)) == RESTART


def test_half_open_keeps_the_device_alive() -> None:
    supervisor = DeviceSupervisor(max_restarts=0, on_exhausted="half_open")
    assert directive(supervisor, 0.0) == (Directive.RESTART, 1.0)


def guarded() -> ContextPoisoned:
    error = ContextPoisoned("x")
    error.guarded = True
    return error


def test_losses_under_a_quarantine_do_not_count_and_beyond_sixty_a_minute_they_cost_a_pause() -> None:
    supervisor = DeviceSupervisor(max_restarts=1)
    assert [directive(supervisor, t / 2, guarded()) for t in range(60)] == [RESTART] * 60
    assert directive(supervisor, 30.0, guarded()) == (Directive.RESTART, 1.0)
    assert directive(supervisor, 60.0, guarded()) == RESTART
    assert directive(supervisor, 60.0) == RESTART
    assert directive(supervisor, 60.0) == STOP


def test_pauses_of_a_half_open_device_double_up_to_the_window_and_begin_again_after_a_quiet_time() -> None:
    supervisor, now, pauses = DeviceSupervisor(max_restarts=0, on_exhausted="half_open", within=20.0), 0.0, []
    for _ in range(8):
        pauses.append(directive(supervisor, now)[1])
        now += pauses[-1]
    assert pauses == [1, 2, 4, 8, 16, 20, 20, 20]
    assert directive(supervisor, now + 120.0)[1] == 1


def test_no_limit() -> None:
    supervisor = DeviceSupervisor(max_restarts=None)
    assert all(directive(supervisor, 0.0) == RESTART for _ in range(1000))


def test_unrecoverable_stops_at_once() -> None:
    assert DeviceSupervisor(max_restarts=None).on_unrecoverable(Unrecoverable("ECC"), 0.0) is Directive.STOP


@given(
    st.lists(st.floats(0, 500, allow_nan=False), max_size=40).map(sorted),
    st.integers(0, 4),
    st.floats(1, 100, allow_nan=False),
)
def test_never_more_than_allowed_in_any_window(times: list[float], limit: int, within: float) -> None:
    supervisor = DeviceSupervisor(limit, within)
    allowed = [t for t in times if directive(supervisor, t) == RESTART]
    for i, start in enumerate(allowed):
        assert sum(t - start < within for t in allowed[i:]) <= limit
