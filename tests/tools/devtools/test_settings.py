"""``docs/simulation-settings.md``: up to date, and nothing of the settings of simulations is missing."""

import inspect
from typing import Any

import msgspec
import pytest

import callboard as cb
from callboard.events.exports import where
from devtools import settings


def public(of: type[Any]) -> set[type[Any]]:
    """Public classes of realtime of a kind."""
    modules = {name: module for name, module in where("callboard").items() if "realtime" in str(module)}
    assert len(modules) > 40
    found = (getattr(cb, name) for name in modules)
    return {one for one in found if inspect.isclass(one) and issubclass(one, of)}


def test_the_page_is_up_to_date() -> None:
    assert settings.PAGE.read_text("utf-8") == settings.page(), "run: scripts/dev generate settings"


def test_all_settings_are_on_it() -> None:
    answers = {one for one in public(msgspec.Struct) if one.__name__.endswith(("Snapshot", "Stats", "Statistics"))}
    assert {one for kinds in settings.GROUPS.values() for one in kinds} == public(msgspec.Struct) - answers


def test_all_actors_are_on_it() -> None:
    made = {one for one in public(object) if hasattr(one, "ask")}
    assert set(settings.ACTORS) == made - {cb.Simulation}


def test_a_field_without_a_description_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cb.Spring, "__doc__", "A spring.\n\n    Attributes:\n        center: The point.\n    ")
    with pytest.raises(KeyError, match="strength"):
        settings.page()
    told = settings.sections("A.\n\n    Args:\n        a, b: One ``x``\n            of :class:`.Y`.\n", "Args")
    assert told == {"a": "One `x` of `Y`.", "b": "One `x` of `Y`."}
