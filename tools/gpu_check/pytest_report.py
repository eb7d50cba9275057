"""pytest plugin: writes every case as a line of JSON, with the ops that it executed on CUDA.

Also with which dtypes of its first operand each op was accepted, and, where a library has several engines and the
session can tell, by which of them it was executed.
Loaded with ``-p``; ``CALLBOARD_GPU_REPORT`` names the file. Lines are written as tests end, so that a run that is cut
short leaves what it has done. Where there are several GPUs, each of pytest-xdist's workers has one.
"""

import functools
import inspect
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu_check.groups import ROOT
from gpu_check.results import BY, OF
from gpu_check.sections import CARDS, FILE

__all__ = ["EXECUTED", "MARKED", "first_dtype", "listen_to_devices", "message_of"]

MARKED = "cuda_ops"
"""Name of the user property: reports carry it from xdist's workers."""

EXECUTED: set[str] = set()
"""What the running test has executed so far."""


def _listen_to_sessions() -> None:
    from callboard.core.op import info_of
    from callboard.testing.session import LibrarySession

    submit = LibrarySession.submit

    @functools.wraps(submit)
    def record(self: Any, op: Any) -> Any:
        if "cuda" not in self.backend.name:
            return submit(self, op)
        tag = info_of(type(op)).tag
        EXECUTED.add(tag)
        answer = submit(self, op)
        _note_dtype(op)
        engine = self.engine_of(op)
        if engine is not None:
            EXECUTED.add(f"{tag}{BY}{engine}")
        return answer

    LibrarySession.submit = record  # type: ignore[method-assign]


def listen_to_devices() -> None:
    """Note the ops that devices on CUDA are given."""
    from callboard.core.op import info_of
    from callboard.device.client.line.port import OpPort

    submit = OpPort.submit
    signature = inspect.signature(submit)

    @functools.wraps(submit)
    def record(*args: Any, **named: Any) -> Any:
        call = signature.bind(*args, **named)
        call.apply_defaults()
        call.arguments["depth"] += 1  # one frame more stands between the op line and the caller, whom errors name
        message = message_of(call.arguments["op"]) if "cuda" in call.arguments["self"].name else None
        if message is not None:
            EXECUTED.add(info_of(type(message)).tag)
        answer = submit(*call.args, **call.kwargs)
        if message is not None:
            _note_dtype(message)
        return answer

    OpPort.submit = record  # type: ignore[method-assign]


def message_of(op: Any) -> Any:
    """The message that an op line is given, or is given the maker of."""
    from callboard.core.op import Repeated

    return op.made() if isinstance(op, Repeated) else op


def _note_dtype(op: Any) -> None:
    """Of an op that was not refused."""
    from callboard.core.op import info_of

    dtype = first_dtype(op)
    if dtype is not None:
        EXECUTED.add(f"{info_of(type(op)).tag}{OF}{dtype}")


def first_dtype(op: Any) -> str | None:
    """The dtype of a message's first required operand, None where it has none."""
    from callboard.core.op import info_of
    from callboard.core.operand import Role, StructOperand, operands_of
    from callboard.kernel.sparse_lt.structured import StructuredRef

    for field in info_of(type(op)).dynamic:
        value = getattr(op, field.name)
        if field.optional or field.role is Role.SCALAR or (field.many and not value):
            continue
        first = value[0] if field.many else value
        if isinstance(first, StructuredRef):
            return str(first.dtype)  # its operand is bytes
        if isinstance(first, StructOperand):
            first = next(iter(operands_of(first).values()))
        return str(first.layout.dtype.name)
    return None


def _take_card() -> None:
    """Leave one GPU visible, before the driver is asked for the first time."""
    worker, cards = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get(CARDS)
    if worker and cards:
        names = cards.split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = names[int(worker.removeprefix("gw")) % len(names)]


def pytest_configure(config: pytest.Config) -> None:
    """Listen where ops enter: the sessions of the conformance suites and the op lines of devices."""
    config.addinivalue_line("markers", "fault: kills processes or poisons contexts")
    _take_card()
    _listen_to_sessions()
    listen_to_devices()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Note which ops the test executed."""
    EXECUTED.clear()
    try:
        return (yield)
    finally:
        item.user_properties.append((MARKED, sorted(EXECUTED)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write the case down; setup and teardown only where they decide."""
    if "PYTEST_XDIST_WORKER" in os.environ or (report.when != "call" and report.passed):
        return
    line: dict[str, Any] = {
        "case": report.nodeid,
        "when": report.when,
        "outcome": report.outcome,
        "seconds": round(report.duration, 4),
        "ops": dict(report.user_properties).get(MARKED, []),
    }
    if not report.passed:
        line["why"] = str(report.longrepr).replace(f"{ROOT}{os.sep}", "")[-2000:]
    with Path(os.environ[FILE]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
