"""Packages that take seconds to import: a test module that names one is collected without it."""

import importlib
import importlib.util
from typing import Any

import pytest


class Lazy:
    """A package that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith(("_", "pytest", "setup", "teardown")):  # pytest asks what it has collected
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def importorskip(name: str, reason: str) -> Any:
    """As pytest's, for a module: its tests are skipped if the package is not installed."""
    if importlib.util.find_spec(name) is None:
        pytest.skip(reason, allow_module_level=True)
    return Lazy(name)
