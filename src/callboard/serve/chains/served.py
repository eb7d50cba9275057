"""``Served``: the models of an app, and their versions."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from callboard.actors.handles import Handle
from callboard.core.errors import AccelError
from callboard.device.config import defaults
from callboard.patterns.hotswap.canary import Canary
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.serve.chains.versions import Versions
from callboard.serve.errors import HttpError, ModelStopped, ModelUnloaded, NotReady
from callboard.serve.http.noted import noted
from callboard.serve.models import Model
from callboard.system import System, started
from callboard.telemetry.install import observe

__all__ = ["Served"]

SERVED: Mapping[str, Any] = {"isolation": "process", "on_exhausted": "half_open", "abandoned_after": 60.0}
"""Defaults of the devices that a lifespan opens: what crashes or hangs in them does not end the server, and they come
back."""


class Served(Handle):
    """Base of :class:`App`: finds a model by name and version, and exchanges versions.

    Attributes:
        models: The default version of each model, by name.
        versions: The versions of each model, by name.
    """

    dashboard: bool
    name: str

    def __init__(self) -> None:
        self.models: dict[str, Model] = {}
        self.versions: dict[str, Versions] = {}
        self._systems: list[System] = []

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Devices that are opened in the block have the defaults :data:`SERVED`, and are known to :meth:`_hurry`.

        Telemetry of their systems is on if there is a page for it.
        """
        set_before, listed_before = defaults.set(SERVED), started.set(self._systems)
        try:
            yield
        finally:
            defaults.reset(set_before)
            started.reset(listed_before)
        for system in self._systems:
            if self.dashboard and not system.is_stopping:
                observe(system)

    def _hurry(self) -> None:
        """Let the devices end soon, whatever runs on them."""
        for system in self._systems:
            system._hurry()

    @property
    @abstractmethod
    def accepting(self) -> bool:
        """True if requests are accepted."""

    @property
    @abstractmethod
    def draining(self) -> bool:
        """True from the beginning of the end on."""

    @property
    @abstractmethod
    def phase(self) -> str:
        """Starting, open or draining, in words."""

    def check_accepting(self) -> None:
        """Raise unless requests are accepted.

        Raises:
            NotReady: The app starts or drains.
        """
        if not self.accepting:
            raise NotReady(f"{self.name} is {self.phase}")

    @property
    @abstractmethod
    def drain_timeout(self) -> float:
        """Seconds that the requests of a replaced version have."""

    def _add(self, model: Model) -> None:
        self._check_new(model.name)
        self._serve(Versions(model.name, lambda *_: model, {model.version: model}, model.version))

    def _serve(self, versions: Versions) -> None:
        model = versions.default
        self.models[model.name], self.versions[model.name] = model, versions

    def find(self, name: str, version: str | None = None) -> Model:
        """A model by its name.

        Raises:
            HttpError: There is no such model, or not in this version: status 404.
        """
        return _noted(self._versions(name).find(version))

    def route(self, name: str, version: str | None = None) -> Model:
        """The version of a model on which a request runs; raises as :meth:`find`."""
        return _noted(self._versions(name).route(version))

    def _versions(self, name: str) -> Versions:
        found = self.versions.get(name)
        if found is None:
            raise HttpError(f"there is no model {name!r}", 404)
        return found

    @property
    def served(self) -> list[Model]:
        """All versions of all models."""
        return [model for versions in self.versions.values() for model in versions.all.values()]

    @property
    def wanted(self) -> list[Model]:
        """All of these but those that were unloaded; all, if none is left."""
        return [model for model in self.served if not model.chain.unloaded] or self.served

    def check_ready(self) -> None:
        """Raise unless requests are accepted, and all models are ready; raises as :meth:`Model.check_ready`."""
        if self.draining:
            raise NotReady(f"{self.name} is {self.phase}")
        self.check_accepting()
        for model in self.wanted:
            model.check_ready()

    def why_not_ready(self) -> str | None:
        """The reason why ``/v2/health/ready`` returns 503; None if it returns 200."""
        if self.draining or not self.accepting:
            return f"{self.name} is {self.phase}"
        return next((why for model in self.wanted if (why := model.why_not_ready()) is not None), None)

    def why_not_live(self) -> str | None:
        """The reason why ``/v2/health/live`` returns 503: a restart of this process is needed; None if it is not."""
        if not self.accepting:
            return None
        return next((why for model in self.served if (why := model.why_not_live()) is not None), None)

    def why_stopped(self, name: str | None, version: str | None) -> AccelError:
        """The error of a request that a server has not taken, or not finished.

        Args:
            name, version: The model that the request ran on, if known.
        """
        try:
            self.check_accepting()
        except NotReady as e:
            return e
        versions = None if name is None else self.versions.get(name)
        if versions is None:
            return ModelStopped("a server that the request needs has stopped")
        model = versions.all.get(version or "")
        if model is None or (model.chain.unloaded and not versions.default.chain.unloaded):
            return NotReady(f"version {version!r} of model {name!r} was replaced before the request was done")
        if model.chain.unloaded:
            return ModelUnloaded(f"model {name!r} was unloaded before the request was done")
        return ModelStopped(model.why_not_live() or f"a server of model {name!r} has stopped")

    async def swap(self, name: str, version: str | ModelVersion, *, canary: Canary | None = None) -> None:
        """Let requests that name no version of a model run on another one; none fails because of it.

        ::

            await app.swap("m", "2")  # a version that is served
            await app.swap("m", cb.ModelVersion("3", load), canary=cb.Canary(share=0.1, requests=200))

        Args:
            name: Name of the model.
            version: A version that was added; it is loaded if it is not. Or a new one of the same inputs and outputs:
                it is loaded beside the default and, once it could answer, takes its place. That finishes its requests,
                and is unloaded if it is a ``ModelVersion``; it can be swapped back to by its name.
            canary: The trial of the version on a share of the requests before. Of its requests, those count that end in
                a value or an error of the model, a lost context (and what follows from it: status 422) and a deadline
                that passes while they run included. It is withdrawn if it is undecided after the canary's ``timeout``.
                ``judge`` and ``agree`` get what the model returns, with its arrays on the host: for one request, or, of
                a server that gets single inputs of ``/v1/embeddings``, for each. With ``shadow`` at most 16 copies of
                requests run at once.

        Raises:
            SwapFailed: The version cannot be loaded, has failed in its trial, or was undecided at its end; the default
                is as before.
            HttpError: There is no such model, or no version of that name.
            ValueError: The new version has the name of one that is served; or ``canary`` has a judge or a shadow, and
                the model streams, or a shadow, and the model has sequences.
            NotReady: The app does not accept requests.
        """
        self.check_accepting()
        self.models[name] = await self._versions(name).swap(version, canary, self.drain_timeout)

    def share(self, name: str, weights: Mapping[str, float]) -> None:
        """Let requests that name no version run on several, by weight: ``app.share("m", {"1": 95, "2": 5})``.

        It holds until the next :meth:`swap`, or until ``weights`` is empty.

        Raises:
            HttpError: There is no such model, or no such version.
            ValueError: A weight is negative, or none is positive.
        """
        self._versions(name).share(weights)

    def _check_new(self, name: str) -> None:
        if name in self.models:
            raise ValueError(f"there is a model {name!r} already")


def _noted(model: Model) -> Model:
    """The model, which the log of the request names from now on."""
    if (about := noted.get()) is not None:
        about.model, about.version = model.name, model.version
    return model
