"""Messages that every simulation takes: ``await simulation.ask(Step(dt=0.01))``."""

from typing import TYPE_CHECKING, Any

import msgspec

from callboard.actors import Request

if TYPE_CHECKING:
    from callboard.realtime.base.simulation import Simulation  # noqa: F401 -- in the types below

__all__ = ["Reset", "Snapshot", "Step", "UpdateConfig"]


class Step(Request["Simulation[Any, Any]", int]):
    """Take steps; the answer is the number of steps since the start.

    Attributes:
        dt: Seconds of each; None: the simulation's own.
        steps: How many.
    """

    dt: float | None = None
    steps: int = 1


class Snapshot(Request["Simulation[Any, Any]", Any]):
    """Copy the state to the host; the answer is the blueprint's own snapshot."""


class Reset(Request["Simulation[Any, Any]", int]):
    """Begin again at step 0; the answer is the number of steps before.

    Attributes:
        state: What to begin with; None: what the simulation was made with.
    """

    state: Any = None


class UpdateConfig(Request["Simulation[Any, Any]", None]):
    """Go on with another configuration.

    Attributes:
        config: The new one; None: the present one.
        changes: Fields of it to replace.
    """

    config: Any = None
    changes: dict[str, Any] = msgspec.field(default_factory=dict)
