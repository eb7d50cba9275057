"""Log records name what they concern: the trace, the actor, the device and its generation."""

import asyncio
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import callboard as cb
from callboard.events.concerns import TRACE
from callboard.telemetry.logs import Concerning, JsonLog, log_by_environment

LIMIT = 60.0
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLog())
    handler.addFilter(Concerning())
    logger = logging.getLogger("callboard")
    logger.addHandler(handler)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)


class Ask(cb.Request["Teller", int]):
    """Raises."""


class Teller(cb.Actor):
    @Ask.handles
    def asked(self, message: Ask) -> int:
        logging.getLogger("callboard.serve").warning("inside")
        raise ValueError("no")


async def test_a_record_names_the_actor_and_the_trace_of_its_task(lines: Lines) -> None:
    TRACE.set("00-" + "ab" * 16 + "-" + "cd" * 8 + "-01")
    logging.getLogger("callboard.serve").warning("outside", extra={"request_id": "given"})
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        teller = system.actor_of(cb.Props(Teller), "teller")
        with pytest.raises(ValueError, match="no"):
            await teller.ask(Ask(), timeout=LIMIT)
    outside, inside, *rest = lines()
    assert (outside["request_id"], outside["trace_id"]) == ("given", "ab" * 16)
    assert "actor" not in outside
    assert inside["actor"].endswith("/teller")
    assert any(each["actor"] == inside["actor"] for each in rest if "failed" in each["message"])


async def test_a_lost_context_names_its_device_and_generation(lines: Lines) -> None:
    async with asyncio.timeout(LIMIT), cb.System("app") as system:
        device = await system.device("cpu", isolation="process", standby=None)
        events = device.events()
        pid = device.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert isinstance(await anext(events), cb.Lost)
        assert isinstance(await anext(events), cb.Recovered)
        await events.aclose()  # type: ignore[attr-defined]
    found = [each for each in lines() if each["logger"] == "callboard.device"]
    lost = next(each for each in found if "is lost" in each["message"])
    ready = next(each for each in found if "is ready" in each["message"])
    assert (lost["device"], lost["generation"]) == ("cpu:0", 1)
    assert f"cpu:0: generation 1 (host {pid}) is lost" in lost["message"]  # which of several of this name
    assert (ready["device"], ready["generation"]) == ("cpu:0", 2)


def test_the_environment_asks_for_json(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    for given in ([], [logging.StreamHandler(sys.stderr)]):
        monkeypatch.setattr(root, "handlers", given)
        monkeypatch.setattr(root, "level", root.level)
        monkeypatch.setenv("CALLBOARD_LOG", "text")
        log_by_environment()
        monkeypatch.setenv("CALLBOARD_LOG", "json")
        log_by_environment()
        log_by_environment()
        (handler,) = root.handlers
        assert isinstance(handler.formatter, JsonLog)
        assert [type(each) for each in handler.filters] == [Concerning]
    monkeypatch.setenv("CALLBOARD_LOG", "xml")
    with pytest.raises(ValueError, match="CALLBOARD_LOG is 'xml'; use 'json' or 'text'"):
        log_by_environment()
