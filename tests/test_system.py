"""``cb.System`` and ``cb.device``: opening a device, and errors when it is opened the wrong way."""

import asyncio
import gc
import importlib.metadata
import inspect
import logging
from typing import Any, get_type_hints

import numpy as np
import pytest

import callboard
import callboard as cb
from callboard import actors
from callboard.actors import ActorSystem
from callboard.actors.timers import Timers
from callboard.core.errors import DeviceStopped
from callboard.device.config import DeviceConfig, DeviceOptions, HostConfig


def open_cpu() -> Any:
    return cb.device("cpu", isolation="thread", standby=None)


def test_with_names_async_with_and_the_blocking_device() -> None:
    with pytest.raises(TypeError, match=r"`async with cb\.device.*`with cb\.sync\.device"):
        with open_cpu():
            pass


def test_methods_of_a_device_that_is_not_open_name_both_ways_to_open_it() -> None:
    with pytest.raises(
        AttributeError, match=r"no 'put' before it is opened: use `async with cb\.device.*cb\.sync\.device"
    ):
        open_cpu().put([1.0])


async def test_await_names_async_with() -> None:
    with pytest.raises(TypeError, match=r"`async with cb\.device.*system\.device"):
        await open_cpu()


async def test_leaving_closes_the_device_and_the_error_of_the_body_is_raised() -> None:
    with pytest.raises(KeyError):
        async with open_cpu() as cpu:
            raise KeyError
    with pytest.raises(DeviceStopped):
        cpu.zeros(3)


async def test_a_device_that_cannot_be_opened_leaves_nothing_behind() -> None:
    opening = cb.device("cpu", max_in_flight=0)
    with pytest.raises(ValueError, match="max_in_flight"):
        await opening.__aenter__()
    assert opening._system.actors == []


def test_the_options_of_a_device_are_its_settings() -> None:
    hints = get_type_hints(DeviceOptions)
    assert list(hints) == [*DeviceConfig.__struct_fields__, *HostConfig.__struct_fields__]


@pytest.mark.parametrize("opener", [cb.device, cb.System.device, cb.sync.device, cb.sync.System.device])
def test_the_options_are_shown_by_every_way_to_open_one(opener: Any) -> None:
    parameters = inspect.signature(opener).parameters
    shown = [name for name in parameters if name != "self"]
    assert shown == ["which", "supervisor", "config", "wait", "node", "options"]
    assert "DeviceOptions" in str(parameters["options"].annotation)


def test_the_options_of_a_system_are_keywords() -> None:
    def shown(cls: type) -> list[tuple[str, Any]]:
        return [(p.name, p.default) for p in inspect.signature(cls).parameters.values()]

    assert shown(cb.System) == shown(ActorSystem)


def test_what_users_catch_is_exported() -> None:
    for name in ("ActorStopped", "AllForOne", "Backoff", "Terminated"):
        assert name in cb.__all__
        assert getattr(cb, name) is getattr(actors, name)


def test_the_version_is_that_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    assert callboard._version() in (cb.__version__, "0+unknown")
    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert callboard._version() == "0+unknown"


def test_what_the_runtime_calls_is_not_public() -> None:
    leaks = [name for name in ("fatal", "gone", "new_cell", "port_of") if hasattr(cb.System, name)]
    assert leaks == []
    assert not hasattr(Timers, "accept")


def about_results(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What was told about results that nobody awaited (a slow machine is told of its late event loop, too)."""
    return [record for record in caplog.records if "was not awaited" in record.getMessage()]


async def test_what_the_application_itself_ends_is_told_quietly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "callboard"):
        async with cb.System("test") as system:
            dev = await system.device("cpu", isolation="thread", wait=False)
            dev.put(np.ones(4))  # which waits for a context
            await dev.close()
            await asyncio.sleep(0)
            gc.collect()
            await asyncio.sleep(0)
            assert system.dead_letters.counts["unretrieved"] == 1
            assert not [r for r in about_results(caplog) if r.levelno > logging.INFO]
            system._unretrieved(cb.DeviceStopped("cpu:0: more than 3 contexts lost"))  # not by closing
    (ended,) = [r for r in caplog.records if "had not ended and was not awaited: cpu:0 was closed" in r.getMessage()]
    (lost,) = [r for r in about_results(caplog) if r.levelno > logging.INFO]
    assert ended.levelno == logging.INFO
    assert "failed and was not awaited: DeviceStopped: cpu:0: more than 3" in lost.getMessage()
