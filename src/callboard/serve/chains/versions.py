"""``Versions``: the versions of a model that are served, and which of them gets the requests that name none."""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from callboard.core.errors import AccelError
from callboard.patterns.hotswap.canary import Canary
from callboard.patterns.hotswap.errors import SwapFailed
from callboard.patterns.hotswap.versions import ModelVersion
from callboard.patterns.requests.errors import ServerStopped
from callboard.serve.chains.trials import ModelTrial
from callboard.serve.errors import HttpError

if TYPE_CHECKING:
    from callboard.serve.models import Model

__all__ = ["Versions", "named"]


class Versions:
    """The versions of one model, all of which have a server of their own.

    Args:
        name: Name of the model.
        make: Makes a model, for a version and what is served.
        given: What is served, by version.
        default: The version that gets requests that name none.

    Attributes:
        all: The models, by version.
        default: The one that gets requests that name none.
    """

    def __init__(self, name: str, make: "Callable[[str, Any], Model]", given: Mapping[str, Any], default: str) -> None:
        self._name = name
        self._make = make
        self.all = {version: make(version, model) for version, model in given.items()}
        self.default = self.all[default]
        self._shares: dict[str, float] = {}
        self._random = random.Random(0)
        self._trial: ModelTrial | None = None
        self._turn = asyncio.Lock()

    def find(self, version: str | None) -> "Model":
        """A version, or the default.

        Raises:
            HttpError: There is no such version: status 404.
        """
        if version is None:
            return self.default
        try:
            return self.all[version]
        except KeyError:
            known = ", ".join(map(repr, self.all))
            raise HttpError(f"model {self._name!r} has version {known}, but no {version!r}", 404) from None

    def route(self, version: str | None) -> "Model":
        """The version that a request runs on; raises as :meth:`find`."""
        if version is not None:
            return self.find(version)
        if self._trial is not None and self._trial.draws():
            return self._trial.new
        if self._shares:
            (drawn,) = self._random.choices(list(self._shares), list(self._shares.values()))
            return self.all[drawn]
        return self.default

    def share(self, weights: Mapping[str, float]) -> None:
        """Let requests that name no version run on several of them, by weight; nothing ends that.

        Raises:
            HttpError: There is no such version.
            ValueError: A weight is negative, or none is positive.
        """
        for version in weights:
            self.find(version)
        if not all(weight >= 0 for weight in weights.values()) or (weights and not sum(weights.values()) > 0):
            raise ValueError(f"model {self._name!r}: weights must be at least 0, and one positive, but are {weights}")
        self._shares = {version: weight for version, weight in weights.items() if weight > 0}

    async def swap(self, version: str | ModelVersion, canary: Canary | None, drain_timeout: float) -> "Model":
        """Make a version the default, as soon as it is ready; requests that name none run on it from then on.

        Args:
            version: A version that is served or was, or a new one, which replaces the default: that finishes its
                requests and is unloaded, and can be loaded again by its name.
            canary: The trial of the version on a share of the requests before.
            drain_timeout: Seconds that the requests of the replaced version have.

        Raises:
            SwapFailed: It could not be loaded, or failed in its trial, or was undecided at its end; the default is
                as before.
            HttpError: There is no version of that name.
            ValueError: A version of the new one's name is served; the model streams, or has sequences, which the trial
                cannot judge or run twice.
        """
        async with self._turn:
            new = isinstance(version, ModelVersion)
            model = self._added(version) if isinstance(version, ModelVersion) else self.find(version)
            if model is self.default:
                self._shares = {}
                return model
            try:
                await _loaded(model)
                if canary is not None:
                    await self._try(model, canary)
            except BaseException:  # cancelled, too
                if new:
                    del self.all[model.version]
                    await model.chain.drain(drain_timeout)
                raise
            old, self.default, self._shares = self.default, model, {}
            if new and old.chain.is_replaceable:
                await old.chain.unload(drain_timeout)
            return model

    def _added(self, version: ModelVersion) -> "Model":
        found = self.all.get(version.version)
        if found is not None and not found.chain.unloaded:
            raise ValueError(f"model {self._name!r} serves a version {version.version!r} already: swap to it by name")
        model = self.all[version.version] = self._make(version.version, version)
        return model

    def end_trial(self) -> None:
        """No more requests will come."""
        if self._trial is not None:
            text = f"model {self._name!r}: the app ends before the trial of version {self._trial.new.version!r}"
            self._trial.fail(ServerStopped(text))

    async def _try(self, model: "Model", canary: Canary) -> None:
        """Let it have its share of the requests, until enough of them have ended."""
        self._trial = ModelTrial(self.default, model, canary)
        try:
            await self._trial.run()
        finally:
            self._trial = None


async def _loaded(model: "Model") -> None:
    """Load a version that is not, and wait until it could answer."""
    chain = model.chain
    try:
        if chain.unloaded:
            await chain.load()
        else:
            await chain.start()
        for need in chain.needs():
            await need.ready()
    except SwapFailed:
        raise
    except AccelError as e:
        text = f"version {model.version!r} of model {model.name!r} was not activated: load failed: {e!r}"
        raise SwapFailed(text, model.version, "load") from e


def named(name: str, model: Any, version: str | None) -> tuple[dict[str, Any], str]:
    """What is served, by version, and the default version.

    Args:
        name: Name of the model, for errors.
        model: One model, a dict of several by version, or a list of ``ModelVersion`` s.
        version: Name of the only version, or the default of several; None: ``"1"``, or the first.

    Raises:
        ValueError: There are none, or two of one name, or none of the default's name.
        TypeError: A list has something else.
    """
    if isinstance(model, list | tuple):
        wrong = next((each for each in model if not isinstance(each, ModelVersion)), None)
        if wrong is not None:
            raise TypeError(f"model {name!r}: {wrong!r} has no version; give a cb.ModelVersion, or a dict of versions")
        found: dict[str, Any] = {each.version: each for each in model}
        if len(found) < len(model):
            raise ValueError(f"model {name!r}: two versions have one name: {[each.version for each in model]}")
    elif isinstance(model, Mapping):
        found = dict(model)
    else:
        own = model.version if isinstance(model, ModelVersion) else "1"
        return {version or own: model}, version or own
    if not found:
        raise ValueError(f"model {name!r} has no version")
    default = next(iter(found)) if version is None else version
    if default not in found:
        raise ValueError(f"model {name!r}: the default version is {default!r}, but there are {list(found)}")
    return found, default
