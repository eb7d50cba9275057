"""The runner in a pytest of its own, in which pytest-asyncio cannot be found."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

RUN = """
import sys
sys.modules["pytest_asyncio"] = None  # find_spec finds nothing then
import pytest
plugins = ("gpu_check.asyncio_runner", "callboard.testing.plugin", "no:cacheprovider")
options = [option for plugin in plugins for option in ("-p", plugin)]
sys.exit(pytest.main(["-q", *options, "-c", sys.argv[1], sys.argv[2]]))
"""

TESTS = """
import asyncio
import pytest
from hypothesis import given, settings, strategies as st

ended = []

@pytest.fixture
async def value():
    loop = asyncio.get_running_loop()
    yield loop, 3
    assert asyncio.get_running_loop() is loop
    ended.append("value")

@pytest.fixture
async def answer(value):
    await asyncio.sleep(0)
    return value[1] + 1

async def test_fixture_and_test_share_a_loop(value, answer):
    assert asyncio.get_running_loop() is value[0]
    assert answer == 4

def test_the_fixture_was_ended():
    assert ended == ["value"]

@pytest.mark.parametrize("n", [1, 2])
async def test_parameters(n):
    assert n

@settings(max_examples=5, database=None)
@given(st.integers())
async def test_examples(n):
    await asyncio.sleep(0)
    assert n == n

async def test_device(cpu_device):
    assert (await cpu_device.full(3, 2.0).get()).tolist() == [2.0, 2.0, 2.0]

@pytest.mark.xfail(strict=True, raises=ZeroDivisionError)
async def test_failure():
    1 / 0

@settings(max_examples=5, database=None)
@given(st.integers())
@pytest.mark.xfail(strict=True, raises=ZeroDivisionError)
async def test_failing_example(n):
    1 / 0

class TestMethod:
    async def test_method(self, answer):
        assert answer == 4
"""


@pytest.mark.slow
def test_async_tests_and_fixtures_run_without_pytest_asyncio(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(TESTS, "utf-8")
    # as the project's: unknown settings and warnings are errors, coroutines never awaited among them
    settings = "addopts = --strict-config --strict-markers\nasyncio_mode = auto\nfilterwarnings = error\n"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{settings}", "utf-8")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools")]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "pytest.ini"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed, 2 xfailed" in done.stdout
