"""Logs of a program that has not set up logging: warnings and errors are on stderr, once."""

import subprocess
import sys

import pytest

LIMIT = 60
PROGRAM = """
import logging, sys
import callboard as cb
from callboard.device.supervision.hosts.output import HostLog
if "configured" in sys.argv:
    logging.basicConfig(format="%(levelname)s %(message)s")
log = logging.getLogger("callboard.serve")
log.info("all is well")
log.warning("a request failed; request 1")
HostLog("cpu:0", 4711).record("torch", logging.ERROR, "it broke")
"""


@pytest.mark.parametrize(
    "arguments, lines",
    [
        ([], ["a request failed; request 1", "[cpu:0 4711] torch: it broke"]),
        (["configured"], ["WARNING a request failed; request 1", "ERROR [cpu:0 4711] torch: it broke"]),
    ],
)
def test_warnings_are_on_stderr_once(arguments: list[str], lines: list[str]) -> None:
    command = [sys.executable, "-c", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert (done.stdout, done.stderr.splitlines()) == ("", lines)
