"""``Schedule``: the step sizes of each update, from a function of the number of updates or a scheduler of torch."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from callboard.train.kinds import Optimizer, optimizer_of
from callboard.train.replicas.eager import spare_compiler
from callboard.train.replicas.rates import Groups, Rates

__all__ = ["Schedule"]

WINDOW = 1024
"""Updates whose settings are kept, for training that goes back to a snapshot."""

GROUPS = 16
"""Groups of parameters up to which a scheduler is tried when a trainer is made."""

USUAL = Groups({"lr": 0.1, "momentum": 0.9}, [{"lr": 0.1, "momentum": 0.9}])
CURE = (
    "pass a function of the number of updates, as for LambdaLR: lambda n: min(1.0, (n + 1) / 100); or one that makes a "
    "scheduler for an optimizer: lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)"
)


class Schedule:
    """Decides the step sizes of each update, in the application: actors are told them with each step.

    So a repeated step has those of the first attempt, whatever was lost in between. A scheduler of torch has an
    optimizer without weights; how it goes on follows from the number of its steps.

    Args:
        given: A function of the number of updates before that gives the factor of the step sizes, or of an optimizer
            that gives a scheduler of torch; None: the factor is 1.
        optimizer: What is trained with.
        name: Of the trainer, for errors.

    Attributes:
        follows: It is a scheduler of torch, which needs to be told by :meth:`begin` what the optimizers are.

    Raises:
        TypeError: It is neither.
    """

    def __init__(self, given: Callable[[Any], Any] | None, optimizer: Optimizer, name: str) -> None:
        self._given = given
        self._what = f"{name}: schedule is {given!r:.80}"
        self.follows = not self._gives_factors(optimizer)
        self._tracks: list[_Track | None] = []
        self._optimizers: Sequence[Groups] = ()

    def _gives_factors(self, optimizer: Optimizer) -> bool:
        if self._given is None:
            return True
        if not callable(self._given):
            raise TypeError(f"{self._what}; {CURE}")
        try:
            float(self._given(0))
        except Exception as error:  # whatever a function of something else raises
            self._try(optimizer, error)
            return False
        return True

    def _try(self, optimizer: Optimizer, factorless: Exception) -> None:
        """Make a scheduler for an optimizer that is like those in the hosts, as far as that is known here.

        Raises:
            TypeError: That is not possible, whatever the groups of parameters may be.
        """
        first: Exception | None = None
        for groups in _likely(optimizer):
            try:
                self._new([groups])
                return
            except _Refused:
                raise
            except Exception as error:  # of the function; perhaps it needs another number of groups
                first = first or error
        raise TypeError(
            f"{self._what}, which gives no factor for 0 updates ({factorless}), and no scheduler of torch for the "
            f"optimizer ({type(first).__name__}: {first}); {CURE}"
        ) from first

    def _new(self, optimizers: Sequence[Groups]) -> list["_Track | None"]:
        """A scheduler for each optimizer that has parameters."""
        make = self._given
        assert make is not None
        return [_Track(make, groups, self._what) if groups.settings else None for groups in optimizers]

    def begin(self, optimizers: Sequence[Groups], updates: int) -> None:
        """Follow these optimizers after so many updates. Takes about 10 µs for each of them.

        Args:
            optimizers: As they were before the first update.
            updates: Made so far.

        Raises:
            Exception: What the scheduler raised, with a note.
        """
        try:
            tracks = self._new(optimizers)
            _settings(tracks, updates)
        except Exception as error:  # of the scheduler
            counts = ", ".join(str(len(one.settings)) for one in optimizers)
            error.add_note(f"{self._what}, for optimizers with {counts} groups of parameters, after {updates} updates")
            raise
        self._tracks, self._optimizers = tracks, optimizers

    def check(self, updates: int) -> None:
        """Try the scheduler for so many updates, from the first one. Takes about 10 µs for each of them.

        Raises:
            Exception: What the scheduler raised, with a note.
        """
        tracks, number = self._new(self._optimizers), 0
        try:
            for number in range(updates):
                _settings(tracks, number)
        except Exception as error:  # of the scheduler
            error.add_note(f"{self._what}, asked for update {number} of the {updates} of this run")
            raise

    def rates(self, updates: int, factor: float) -> Rates:
        """The step sizes of the next update.

        Args:
            updates: Made so far.
            factor: Of the step sizes, besides.

        Raises:
            ValueError: A step size that cannot be.
            Exception: What the function or the scheduler raised, with a note.
        """
        try:
            if self.follows:
                return Rates(factor, _settings(self._tracks, updates))
            own = 1.0 if self._given is None else float(self._given(updates))
        except Exception as error:  # of the function
            error.add_note(f"{self._what}, asked for update {updates}")
            raise
        if not 0 <= own < math.inf:
            raise ValueError(f"schedule gave {own} for update {updates}; it is a finite factor, at least 0")
        return Rates(factor * own)


class _Refused(TypeError):
    """A scheduler of torch that cannot be used, whatever the optimizer."""


class _Track:
    """A scheduler of torch on an optimizer without weights: what it sets for each update.

    Args:
        make: Makes the scheduler.
        groups: The optimizer.
        what: The schedule, for errors.
    """

    def __init__(self, make: Callable[[Any], Any], groups: Groups, what: str) -> None:
        self._make = make
        self._groups = groups
        self._what = what
        self._begin()

    def _begin(self) -> None:
        self._optimizer = _without_weights(self._groups)
        self._scheduler = _checked(self._make(self._optimizer), self._optimizer, self._what)
        self._optimizer.step()  # torch warns of a scheduler that goes on before its optimizer
        self._changed = [{"lr"} for _ in self._groups.settings]
        self._updates = 0
        self._latest = deque([self._found()], WINDOW)

    def at(self, updates: int) -> list[dict[str, Any]]:
        """What the scheduler has changed in each group, after so many steps of it."""
        if updates <= self._updates - len(self._latest):
            self._begin()
        while self._updates < updates:
            self._scheduler.step()
            self._updates += 1
            self._latest.append(self._found())
        return self._latest[updates - self._updates - 1]

    def _found(self) -> list[dict[str, Any]]:
        found = []
        for group, before, changed in zip(
            self._optimizer.param_groups, self._groups.settings, self._changed, strict=True
        ):
            changed.update(name for name, value in before.items() if group[name] != value)
            found.append({name: float(group[name]) if name == "lr" else group[name] for name in changed})
        return found


def _settings(tracks: Sequence[_Track | None], updates: int) -> list[list[dict[str, Any]]]:
    """For each optimizer, what its scheduler has changed; one without parameters has none."""
    found = [[] if track is None else track.at(updates) for track in tracks]
    for own in found:
        for group, settings in enumerate(own):
            if not 0 <= settings["lr"] < math.inf:
                raise ValueError(
                    f"schedule gave the step size {settings['lr']} for update {updates}, group {group}; it is a finite "
                    "number, at least 0"
                )
    return found


def _likely(optimizer: Optimizer) -> Iterator[Groups]:
    """What the optimizers in the hosts may look like."""
    import torch

    try:
        parameters = list(torch.nn.Linear(2, 2).parameters())
        first = Groups.of(optimizer_of(optimizer, parameters))
    except Exception:  # it needs the parameters of the model
        first = USUAL
    yield first
    for count in range(1, GROUPS + 1):
        yield Groups(first.defaults, [first.settings[at % len(first.settings)] for at in range(count)])


def _without_weights(groups: Groups) -> Any:
    import torch

    class Settings(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            """Nothing is updated."""

    spare_compiler()
    parameters = [torch.nn.Parameter(torch.zeros(())) for _ in groups.settings]
    pairs = zip(groups.settings, parameters, strict=True)
    return Settings([{**own, "params": [one]} for own, one in pairs], dict(groups.defaults))


def _checked(found: Any, optimizer: Any, what: str) -> Any:
    import torch

    schedulers = torch.optim.lr_scheduler
    if isinstance(found, schedulers.ReduceLROnPlateau):
        raise _Refused(
            f"{what}, which gives a ReduceLROnPlateau of torch; pass cb.ReduceLROnPlateau(factor={found.factor}, "
            f"patience={found.patience + 1}), which reads the evaluations of fit itself"
        )
    if not isinstance(found, schedulers.LRScheduler):
        raise _Refused(f"{what}, which gives {found!r:.80}; {CURE}")
    if getattr(found, "optimizer", None) is not optimizer:
        raise _Refused(f"{what}, which gives a scheduler of another optimizer; make it for the one that is passed")
    return found
