"""``cb.sync`` has what the asynchronous API has, under the same names; each difference has its reason.

What is left out, and why, is in the table of the generator, ``tools/devtools/twin_table.py``.
"""

import inspect
import re
from typing import Any

import pytest

import callboard as cb
from devtools.twin import TARGET, is_fresh
from devtools.twin_table import LEFT_OUT

PAIRS: dict[str, tuple[type[Any], type[Any]]] = {
    "Cluster": (cb.Cluster, cb.sync.Cluster),
    "Device": (cb.Device, cb.sync.Device),
    "PinnedBufferPool": (cb.PinnedBufferPool, cb.sync.PinnedBufferPool),
    "Quarantine": (cb.Quarantine, cb.sync.Quarantine),
    "ResidentRef": (cb.ResidentRef, cb.sync.ResidentRef),
    "Stream": (cb.Stream, cb.sync.Stream),
    "System": (cb.System, cb.sync.System),
}

ONLY_BLOCKING = {
    "Cluster.close": "asynchronous ones are closed by `async with`",
    "Device.wait_generation": "in place of watch_generation",
    "Quarantine.close": "it keeps the loop of cb.sync; an asynchronous one keeps nothing",
    "Stream.close": "in place of aclose",
    "System.close": "in place of stop",
}
OTHER_PARAMETERS = {
    "Device.close": "Ctrl-C limits it",
    "PinnedBufferPool.close": "the reason is the device's, which closes its pools",
    "ResidentRef.stop": "it waits, as stop_and_wait does: with a timeout",
    "System.__init__": "no actors",
}


def public(cls: type[Any]) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_the_generated_classes_are_up_to_date() -> None:
    text = TARGET.read_text("utf-8")
    assert is_fresh(text), "run: scripts/blocking-twin --write"
    assert not is_fresh(text.replace("self._device.health()", "self._device.stats()"))
    assert not is_fresh(text.replace("never waits.", "waits."))


@pytest.mark.parametrize("name", PAIRS)
def test_no_docstring_speaks_of_awaiting(name: str) -> None:
    """They are those of the asynchronous classes: what is asynchronous there must have been replaced."""
    blocking = PAIRS[name][1]
    mine = public(blocking) & vars(blocking).keys()
    told = {member: inspect.getdoc(getattr(blocking, member)) or "" for member in mine}
    assert {member: text for member, text in told.items() if re.search(r"\bawait\b|\basync", text)} == {}


@pytest.mark.parametrize("name", PAIRS)
def test_the_names_are_the_same(name: str) -> None:
    asynchronous, blocking = map(public, PAIRS[name])
    missing = {f"{name}.{each}" for each in asynchronous - blocking}
    extra = {f"{name}.{each}" for each in blocking - asynchronous}
    prefix = f"{name}."
    assert missing == {each for each in LEFT_OUT if each.startswith(prefix)}
    assert extra == {each for each in ONLY_BLOCKING if each.startswith(prefix)}


@pytest.mark.parametrize("name", PAIRS)
def test_the_parameters_are_the_same(name: str) -> None:
    one, other = PAIRS[name]
    for method in public(one) & public(other):
        known, found = getattr(one, method), getattr(other, method)
        if not inspect.isfunction(known) or f"{name}.{method}" in OTHER_PARAMETERS:
            assert inspect.isfunction(known) == inspect.isfunction(found), method
            continue
        assert list(inspect.signature(found).parameters) == list(inspect.signature(known).parameters), method


async def test_a_device_tells_the_same_of_itself() -> None:
    """Attributes that an instance sets are in no class."""
    async with cb.device("cpu", isolation="thread", standby=None) as gpu:
        told = {name for name in vars(gpu) if not name.startswith("_")}
    with cb.sync.device("cpu", isolation="thread", standby=None) as blocking:
        missing = {name for name in told if not hasattr(blocking, name)}
        assert missing == {"ref"}, "the device's actor, which is asked on a loop"
        assert blocking.accel_backend.name == blocking.backend == "cpu"
        assert blocking.ready().available
        held = blocking.zeros(3)
        held.get()
        assert blocking.in_flight == 0
    assert not blocking.available
    assert blocking.in_flight == 0


def test_the_module_has_what_needs_no_loop() -> None:
    """What is missing runs on a loop: `serving` runs a server there, a world belongs to a program with a loop."""
    assert set(cb.sync.__all__) - {*PAIRS, "PerGeneration", "Ref"} == {"cluster", "device", "serving"}
