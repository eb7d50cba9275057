"""``cb.sync`` has what the asynchronous API has, under the same names; each difference has its reason."""

import inspect
from typing import Any

import pytest

import callboard as cb

PAIRS: dict[str, tuple[type[Any], type[Any]]] = {
    "Cluster": (cb.Cluster, cb.sync.Cluster),
    "Device": (cb.Device, cb.sync.Device),
    "PinnedBufferPool": (cb.PinnedBufferPool, cb.sync.PinnedBufferPool),
    "Quarantine": (cb.Quarantine, cb.sync.Quarantine),
    "ResidentRef": (cb.ResidentRef, cb.sync.ResidentRef),
    "Stream": (cb.Stream, cb.sync.Stream),
    "System": (cb.System, cb.sync.System),
}

ACTORS = "actors run on a loop; cb.sync has devices, and resident actors on them"
ENDS = "a blocking end is called close"
OF_SERVERS = "servers call it for their requests, and run on a loop"

ONLY_ASYNCHRONOUS = {
    "Cluster.close_devices": "close does it",
    "Device.watch_generation": "its values are awaited; wait_generation waits for one",
    "Quarantine.begin": OF_SERVERS,
    "Quarantine.blame": OF_SERVERS,
    "Quarantine.end": OF_SERVERS,
    "Quarantine.has_records": OF_SERVERS,
    "Quarantine.lost": OF_SERVERS,
    "Quarantine.pause": OF_SERVERS,
    "Quarantine.refuse_held": OF_SERVERS,
    "Quarantine.resume": OF_SERVERS,
    "Quarantine.run_as": OF_SERVERS,
    "ResidentRef.stop_and_wait": "stop waits",
    "Stream.aclose": ENDS,
    "System.actor_of": ACTORS,
    "System.actors": ACTORS,
    "System.loop_lag": ACTORS,
    "System.on_termination": ACTORS,
    "System.spawn": ACTORS,
    "System.start": "it starts with its first device",
    "System.stop": ENDS,
    "System.terminated": ACTORS,
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


@pytest.mark.parametrize("name", PAIRS)
def test_the_names_are_the_same(name: str) -> None:
    asynchronous, blocking = map(public, PAIRS[name])
    missing = {f"{name}.{each}" for each in asynchronous - blocking}
    extra = {f"{name}.{each}" for each in blocking - asynchronous}
    prefix = f"{name}."
    assert missing == {each for each in ONLY_ASYNCHRONOUS if each.startswith(prefix)}
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
