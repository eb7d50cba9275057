"""Odd texts and values from a resident actor end that call, not the context; and odd arguments are refused by name."""

import asyncio
import logging
import math
import os
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import FILE, Odd, Probe

import callboard as cb

pytestmark = pytest.mark.leaves_nothing


async def test_results_and_exceptions_end_their_call_only(dev: cb.Device) -> None:
    odd = dev.actor_of(cb.Props(Odd), name="odd")
    await odd.call(Probe.add, 1)
    bystander = dev.put(np.ones(3))
    with pytest.raises(TypeError, match=r"result\['names'\]\[0\]: the text has lone surrogates.*os.fsencode"):
        await odd.call(Odd.result, "file")
    with pytest.raises(ValueError, match=r"the result: 40,.* bytes without arrays"):
        await odd.call(Odd.result, "long")
    assert (await odd.call(Odd.result, "dtype")).dtype.names == (FILE,)
    with pytest.raises(ValueError, match=r"caf\\udce9.txt"):
        await odd.call(Odd.error, "file")
    with pytest.raises(ValueError, match="bytes left out") as long:
        await odd.call(Odd.error, "long")
    assert len(str(long.value)) < 10_000
    with pytest.raises(ValueError, match=r"\(1.5, 'text'\)"):
        await odd.call(Odd.error, "numpy")
    with pytest.raises(cb.LibraryError):
        await odd.call(Odd.error, "library")
    with pytest.raises(FileNotFoundError) as missing:
        await odd.call(Odd.error, "missing")
    assert (missing.value.errno, missing.value.filename) == (2, "/nowhere/caf\\udce9.txt")
    with pytest.raises(KeyError):
        await odd.call(Odd.error, "notes")
    with pytest.raises((RuntimeError, StopIteration)):
        await odd.call(Odd.error, "stop")
    assert await odd.call(Probe.state) == (1, 1, 1)
    assert (await dev.stats()).restarts == 0
    np.testing.assert_array_equal(await bystander.get(), np.ones(3))


@pytest.mark.slow
async def test_log_lines_are_shortened_and_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "callboard.host")
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        odd = dev.actor_of(cb.Props(Odd))
        await odd.call(Odd.write_log)
        async with asyncio.timeout(20):
            while not any(r.message.endswith("stdout: caf\\udce9.txt") for r in caplog.records):
                await dev.stats()
        assert (await dev.stats()).restarts == 0
    lines = [r.message for r in caplog.records if "odd.caf\\udce9.txt: " in r.message]
    assert [line.rpartition(": ")[2] for line in lines if len(line) < 200] == ["caf\\udce9.txt", "plain"]
    assert any("[... 1,983,616 bytes left out ...]" in line for line in lines)


async def test_a_text_that_is_not_unicode_is_refused_by_the_arguments_name(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    with pytest.raises(TypeError, match=r"probe.echo: value\['k'\]: the text has lone surrogates.*os.fsencode"):
        probe.call(Probe.echo, {"k": FILE})
    with pytest.raises(TypeError, match=r"probe.echo: value\['caf\\udce9.txt'\]: the text has"):
        probe.call(Probe.echo, {FILE: 1})
    with pytest.raises(ValueError, match="pass Unicode text without '/'"):
        dev.actor_of(cb.Props(Probe), name=FILE)
    with pytest.raises(ValueError, match="of at most 1024 bytes"):
        dev.actor_of(cb.Props(Probe), name="x" * 2000)
    assert probe.in_flight == 0
    assert await probe.call(Probe.echo, os.fsencode(FILE)) == os.fsencode(FILE)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name, value, kind, why",
    [
        ("max_concurrency", 0, ValueError, "must be at least 1, but is 0"),  # its coroutines would never begin
        ("max_in_flight", math.nan, ValueError, "must be at least 1, but is nan"),
        ("max_in_flight", "many", TypeError, "must be a number of calls, but is 'many'"),
        ("overflow", "drop_new", ValueError, "must be 'fail' or 'drop_old', but is 'drop_new'"),
        ("supervision", cb.OneForOne, TypeError, "must be a strategy such as cb.OneForOne"),
    ],
)
async def test_a_class_attribute_is_refused_when_the_class_is_made_and_at_the_start(
    dev: cb.Device, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=rf"Made\.{name} {why}"):
        type("Made", (Probe,), {name: value})
    monkeypatch.setattr(Probe, name, value)
    with pytest.raises(kind, match=rf"Probe\.{name} {why}"):
        dev.actor_of(cb.Props(Probe))
    type("Sound", (cb.ResidentActor,), {"max_concurrency": 1, "max_in_flight": math.inf})
