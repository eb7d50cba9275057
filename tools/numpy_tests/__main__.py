"""``python -m numpy_tests [FILE …] [-k WORD]``: NumPy's tests against ``dev.np``, their share, and what fails."""

import argparse
import collections
import inspect
import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest

import callboard as cb
from numpy_tests.chosen import FILES, reason_of
from numpy_tests.shim import Shim, nested, on_host, shimmed

FIGURES = Path(__file__).with_name("figures.json")
SECONDS = 20
"""For one test."""


class TooLong(BaseException):
    """A test has taken too long. No ``TimeoutError``: waits of a device and tests handle those."""


class Plugin:
    """Gives the test modules the shim, leaves out what is not chosen, and counts."""

    def __init__(self, device: Any, only: str, told: Any) -> None:
        self.told = told
        self.shim = Shim(device.np)
        self.only = only
        self.left_out: collections.Counter[str] = collections.Counter()
        self.outcomes: dict[str, str] = {}
        self.errors: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Choose the tests, and shim their modules."""
        kept = []
        reasons: dict[str, str | None] = {}
        for item in items:
            classes = next((names for file, names in FILES.items() if str(item.path).endswith(file)), "")
            if (classes and not re.search(classes, item.nodeid)) or self.only not in item.nodeid:
                continue
            name = item.nodeid.partition("::")[2].partition("[")[0]
            if name not in reasons:
                source = inspect.getsource(inspect.unwrap(item.function))
                reasons[name] = reason_of(name, source)
            why = reasons[name] or reason_of(item.nodeid.partition("[")[2], "")
            if why is None:
                kept.append(item)
            else:
                self.left_out[why] += 1
        items[:] = kept
        for item in items:
            given = item.callspec.params if hasattr(item, "callspec") else {}
            for name, value in given.items():
                given[name] = nested(value, self.shim)
        for module in {item.module for item in items}:
            for name, value in list(vars(module).items()):
                if not name.startswith("__"):
                    found = shimmed(name, value, self.shim)
                    if found is not value:
                        setattr(module, name, found)
                    elif isinstance(value, type) and value.__module__ == module.__name__:
                        for own, attribute in list(vars(value).items()):
                            if not own.startswith("__") and not callable(attribute):
                                setattr(value, own, nested(attribute, self.shim))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        """One test, in limited time."""
        self.shim.used.clear()

        def late(*_: Any) -> None:
            raise TooLong(f"more than {SECONDS} s")

        signal.signal(signal.SIGALRM, late)
        signal.alarm(SECONDS)
        try:
            return (yield)
        finally:
            signal.alarm(0)
            item.used = bool(self.shim.used)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Keep the outcome."""
        report = yield
        if report.when == "call" or report.failed:
            if report.skipped:
                self.left_out["skipped by NumPy, or expected to fail"] += 1
            elif report.when == "call" and not getattr(item, "used", True):
                self.left_out["uses no function of the namespace"] += 1
            else:
                self.outcomes[item.nodeid] = "passed" if report.passed else "failed"
                if not report.passed:
                    self.errors[item.nodeid] = _last(call.excinfo)
                    if self.told is not None:
                        print(f"{item.nodeid}: {self.errors[item.nodeid]}", file=self.told, flush=True)
        return report


def _last(excinfo: Any) -> str:
    if excinfo is None:
        return "setup"
    text = " ".join(str(excinfo.value).split())[:300]
    return f"{excinfo.typename}: {text}"


def main() -> int:
    """Run them; 0 if the share is reached."""
    parser = argparse.ArgumentParser(prog="python -m numpy_tests", description=__doc__)
    parser.add_argument("files", nargs="*", help="parts of names of files; all when left out")
    parser.add_argument("-k", dest="only", default="", help="a part of a test's id")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument(
        "--write", action="store_true", help=f"write the figures to {FIGURES.name}, for docs/coverage.md"
    )
    parser.add_argument("--failures", help="a file for the tests that fail, and why")
    given = parser.parse_args()
    root = Path(numpy.__file__).parent
    files = [file for file in FILES if not given.files or any(part in file for part in given.files)]
    figures: dict[str, Any] = {}
    with cb.sync.device("cpu", isolation="thread", standby=None) as device:
        numpy.testing.__dict__.update(_wrapped(numpy.testing))
        target = given.failures or (FIGURES.with_name("failures.txt") if given.write else None)
        told = open(target, "w", encoding="utf-8") if target else None  # noqa: SIM115 - for the run
        for file in files:
            plugin = Plugin(device, given.only, told)
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "no:randomly",
                "--tb=no",
                "-o",
                "addopts=",
                "--no-header",
                "-W",
                "ignore",
                f"--rootdir={root}",
                "-c",
                "/dev/null",
                "-r",
                "N",
                "--override-ini=python_files=test_*.py",
            ]
            pytest.main([*options, str(root / file)], plugins=[plugin])
            passed = sum(one == "passed" for one in plugin.outcomes.values())
            figures[file] = {"chosen": len(plugin.outcomes), "passed": passed, "left_out": dict(plugin.left_out)}
    chosen, passed = (sum(one[key] for one in figures.values()) for key in ("chosen", "passed"))
    for file, one in figures.items():
        sys.stdout.write(
            f"{file:45} {one['passed']:5} of {one['chosen']:5}, left out {sum(one['left_out'].values())}\n"
        )
    sys.stdout.write(f"{'all':45} {passed:5} of {chosen:5}: {passed / max(chosen, 1):.1%}\n")
    target = FIGURES if given.write else given.json and Path(given.json)
    if target:
        target.write_text(json.dumps({"numpy": numpy.__version__, "files": figures}, indent=1) + "\n", "utf-8")
    return 0 if passed >= 0.85 * chosen else 1


def _wrapped(module: Any) -> dict[str, Any]:
    """``np.testing.assert_equal``, which tests read of the module."""

    def wrap(function: Any) -> Any:
        def compared(*args: Any, **kwargs: Any) -> Any:
            return function(*map(on_host, args), **{key: on_host(one) for key, one in kwargs.items()})

        return compared

    return {
        name: wrap(one)
        for name, one in vars(module).items()
        if name.startswith("assert_") and callable(one) and name != "assert_raises" and name != "assert_raises_regex"
    }


if __name__ == "__main__":
    sys.exit(main())
