"""pytest plugin: runs async tests and async fixtures where pytest-asyncio is not installed.

For a GPU machine without a network. Of pytest-asyncio it does what our tests use: every coroutine test and every async
fixture of function scope runs, on one event loop per test. Loaded with ``-p``; does nothing beside pytest-asyncio.
"""

import asyncio
import contextlib
import functools
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

__all__ = ["asyncio_runner"]

NEEDED = importlib.util.find_spec("pytest_asyncio") is None
RUNNER = "_callboard_asyncio_runner"


def asyncio_runner() -> Iterator[asyncio.Runner]:
    """The loop of one test."""
    with asyncio.Runner() as runner:
        yield runner


if NEEDED:
    _callboard_asyncio_runner = pytest.fixture(name=RUNNER)(asyncio_runner)

    def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
        """pytest-asyncio's settings, so that the ini file is accepted; and its name, which its users look for."""
        parser.addini("asyncio_mode", "as pytest-asyncio; auto is the only mode here", default="auto")
        parser.addini("asyncio_default_fixture_loop_scope", "as pytest-asyncio; function is the only scope here")
        stand_in = types.ModuleType("pytest_asyncio", "What our fixtures use of pytest-asyncio.")
        stand_in.fixture = pytest.fixture  # type: ignore[attr-defined]
        sys.modules["pytest_asyncio"] = stand_in
        pluginmanager.register(types.SimpleNamespace(), "asyncio")

    def pytest_configure(config: pytest.Config) -> None:
        """The mark."""
        config.addinivalue_line("markers", "asyncio: run on an event loop")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        """Every async test uses the loop, so that it is closed after the test's fixtures."""
        for item in items:
            if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(_tested(item.obj)):
                item.fixturenames.insert(0, RUNNER)

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
        """Run a coroutine test, or each of its examples where hypothesis calls it."""
        runner = pyfuncitem.funcargs.get(RUNNER)
        test = pyfuncitem.obj
        if not isinstance(runner, asyncio.Runner):
            return (yield)
        handle = getattr(test, "hypothesis", None)
        if handle is not None:
            inner = handle.inner_test
            handle.inner_test = _synchronous(inner, runner)
            try:
                return (yield)
            finally:
                handle.inner_test = inner
        pyfuncitem.obj = _synchronous(test, runner)
        try:
            return (yield)
        finally:
            pyfuncitem.obj = test

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(fixturedef: Any, request: pytest.FixtureRequest) -> Iterator[None]:
        """Run an async fixture on the loop of its test."""
        function = fixturedef.func
        if not (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)):
            return (yield)
        runner = request.getfixturevalue(RUNNER)
        wrap = _generator if inspect.isasyncgenfunction(function) else _synchronous
        fixturedef.func = wrap(function, runner)
        try:
            return (yield)
        finally:
            fixturedef.func = function


def _tested(test: Callable[..., Any]) -> Callable[..., Any]:
    """What hypothesis calls for each example, or the test itself."""
    handle = getattr(test, "hypothesis", None)
    inner: Callable[..., Any] = test if handle is None else handle.inner_test
    return inner


def _synchronous(function: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return runner.run(function(*args, **kwargs))

    return run


def _generator(function: Callable[..., Any], runner: asyncio.Runner) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Iterator[Any]:
        generator = function(*args, **kwargs)
        yield runner.run(_next(generator))
        with contextlib.suppress(StopAsyncIteration):
            runner.run(_next(generator))

    return run


async def _next(generator: Any) -> Any:
    return await anext(generator)
