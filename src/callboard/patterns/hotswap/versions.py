"""``ModelVersion`` and ``VersionBook``: which versions there are, which one is active, which are kept. No I/O."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from callboard.patterns.hotswap.errors import UnknownVersion
from callboard.patterns.requests.stats import Distribution, Histogram

__all__ = ["ModelVersion", "Version", "VersionBook", "VersionState", "VersionStats", "check_version"]


@dataclass(frozen=True)
class ModelVersion:
    """A version of a model: how to load, try and unload it.

    Attributes:
        version: Name of the version.
        load: Makes the model: a function (called on a thread) or an async one. The model gets an item and returns its
            response, awaited if it can be: a function, an async one, ``functools.partial(ref.call, Model.predict)``
            of a resident actor. Or it is another serving blueprint, which is started if it was not.
        unload: Called with the model when no request runs on it any more. By default a blueprint is stopped, and any
            other model is only dropped.
        warmup: Items for calls before the first request; their responses are dropped.
        golden: Pairs of an item and its expected response. The structure, shape and dtype of the response must be
            equal, and it must be finite if the expected one is.
        update: Function that puts the weights of this version into the loaded model of another one, in place, so that
            captured graphs and addresses stay valid: ``update(model)`` receives the result of that version's ``load``.
            No request runs meanwhile.
        memory: Bytes that it needs on the device; 0 is unknown.
        check: Gets response and expected response of each golden pair. False, or an exception, refuses the version.
    """

    version: str
    load: Callable[[], Any]
    unload: Callable[[Any], Any] | None = None
    warmup: Sequence[Any] = ()
    golden: Sequence[tuple[Any, Any]] = ()
    check: Callable[[Any, Any], bool] | None = None
    update: Callable[[Any], Any] | None = None
    memory: int = 0

    def __post_init__(self) -> None:
        if not self.version:
            raise ValueError("the name of a version is empty")
        if self.memory < 0:
            raise ValueError(f"memory of version {self.version!r} must be at least 0 bytes, but is {self.memory}")
        for name in ("load", "unload", "check", "update"):
            given = getattr(self, name)
            if not callable(given) and (name == "load" or given is not None):
                raise TypeError(f"{name} of version {self.version!r} is {given!r}, which cannot be called")
        if self.check is not None and not self.golden:
            raise ValueError(f"version {self.version!r} has a check, but no golden items for it")


def check_version(given: object) -> None:
    """Check what is to be loaded.

    Raises:
        TypeError: It is not a :class:`ModelVersion`.
    """
    if not isinstance(given, ModelVersion):
        raise TypeError(f"the version is {given!r}; give a cb.ModelVersion(name, load), whose load() makes the model")


class VersionState(StrEnum):
    """The state of a version. Members equal their texts."""

    LOADING = "loading"
    """It is being loaded, warmed up or checked; it gets no requests."""
    CANARY = "canary"
    """It gets a share of the requests."""
    ACTIVE = "active"
    DRAINING = "draining"
    """It gets no more requests, and finishes those that run."""
    STANDBY = "standby"
    """It is loaded and gets no requests."""
    UNLOADED = "unloaded"
    FAILED = "failed"
    """It could not be loaded or activated, and is not loaded."""


@dataclass(frozen=True)
class VersionStats:
    """Figures of one version, over all times that it was loaded.

    Attributes:
        version: Name of the version.
        state: State of the version.
        running: Requests that run on it now.
        completed: Calls that returned, also for requests that had ended before, in a cancellation for example.
        failed: Calls that raised.
        run_time: Seconds of the calls that returned.
    """

    version: str
    state: VersionState
    running: int
    completed: int
    failed: int
    run_time: Distribution


class Version:
    """A version, its state and its statistics. ``model`` and ``idle`` belong to the server; None while it has none."""

    __slots__ = ("completed", "failed", "idle", "model", "run_time", "running", "settings", "state")

    def __init__(self, settings: ModelVersion) -> None:
        self.settings = settings
        self.state = VersionState.LOADING
        self.running = self.completed = self.failed = 0
        self.run_time = Histogram()
        self.model: Any = None
        self.idle: Any = None

    @property
    def name(self) -> str:
        return self.settings.version

    def stats(self) -> VersionStats:
        """Figures of the version."""
        return VersionStats(self.name, self.state, self.running, self.completed, self.failed, self.run_time.snapshot())


class VersionBook:
    """All versions, in the order in which they were active.

    Args:
        keep: Versions at most that stay loaded beside the active one, those that were active last.
        history: Unloaded versions at most that stay on record, those that were active last.
    """

    def __init__(self, keep: int, history: int) -> None:
        for name, value in (("keep", keep), ("history", history)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be a number of versions, but is {value}")
        self._keep, self._history = keep, history
        self._versions: dict[str, Version] = {}  # in the order in which they were last active, or loaded
        self._past: list[Version] = []  # that were active, each of them once
        self.active: Version | None = None
        self.generation = 0

    def all(self) -> list[Version]:
        """The retained versions; the most recently activated one is last."""
        return list(self._versions.values())

    def add(self, settings: ModelVersion) -> Version:
        """A new version, or one that takes the place of an unloaded one of the same name.

        Raises:
            ValueError: A version of that name is loaded.
        """
        found = self._versions.get(settings.version)
        if found is not None and found.state not in (VersionState.UNLOADED, VersionState.FAILED):
            raise ValueError(f"version {settings.version!r} is {found.state}; activate it, or use another name")
        version = Version(settings)
        self._versions.pop(version.name, None)
        self._versions[version.name] = version
        if found is not None:
            self._past = [each for each in self._past if each is not found]
        return version

    def find(self, name: str) -> Version:
        """The version of that name.

        Raises:
            UnknownVersion: There is no such version.
        """
        try:
            return self._versions[name]
        except KeyError:
            known = ", ".join(map(repr, self._versions)) or "none"
            raise UnknownVersion(f"there is no version {name!r}; there are: {known}") from None

    @property
    def previous(self) -> Version:
        """The one to roll back to.

        Raises:
            UnknownVersion: None was active before the active one.
        """
        if not self._past:
            raise UnknownVersion("there is no earlier version to roll back to")
        return self._past[-1]

    def activate(self, version: Version, *, back: bool = False) -> Version | None:
        """Direct requests that start from now on to this version; returns the one to drain.

        Args:
            version: A loaded one.
            back: It is :attr:`previous`: a further rollback must not lead to the version that was active.
        """
        old, self.active = self.active, version
        if back:
            self._past.pop()
        elif old is not None:
            self._past = [*(each for each in self._past if each is not old), old]
        version.state = VersionState.ACTIVE
        if old is not None:
            old.state = VersionState.DRAINING
            self._versions[old.name] = self._versions.pop(old.name)
        self._versions[version.name] = self._versions.pop(version.name)
        self.generation += 1
        return old

    def drained(self, version: Version) -> list[Version]:
        """No request runs on it any more; returns the versions that are not to stay loaded, oldest first."""
        version.state = VersionState.STANDBY
        kept = [each for each in self._versions.values() if each.state is VersionState.STANDBY]
        return kept[: len(kept) - self._keep] if len(kept) > self._keep else []

    def unloaded(self, version: Version, state: VersionState) -> None:
        """Record that it was unloaded, or could not be loaded; drops the oldest unloaded versions."""
        version.state, version.model = state, None
        ended = [each for each in self._versions.values() if each.state in (VersionState.UNLOADED, VersionState.FAILED)]
        for each in ended[: max(0, len(ended) - self._history)]:
            del self._versions[each.name]
            self._past = [other for other in self._past if other is not each]
