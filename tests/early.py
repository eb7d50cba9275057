"""Cases that will not run are not made: items of pytest, most of which the rules would deselect.

Of 79,000 cases a plain run without a GPU executes 7,000. The rules of ``gpu_cases`` and ``thorough`` choose among the
parameters of each test, before items exist, and again among the items, for tests without parameters. What is left out
is counted by the hook for deselected items. Where cases are chosen by name, keyword or mark, all are made: a case that
was not chosen is not counted.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests import gpu_cases, thorough


class Case:
    """A case of a test of which no item exists: as much of one as the rules read."""

    def __init__(self, metafunc: pytest.Metafunc, callspec: Any) -> None:
        self.path = metafunc.definition.path
        self.name = self.originalname = metafunc.definition.name
        self.callspec = callspec
        self._definition = metafunc.definition

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        own = (mark for mark in self.callspec.marks if mark.name == name)
        return next(own, None) or self._definition.get_closest_marker(name)


def _are_chosen(config: pytest.Config) -> bool:
    return bool(config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args))


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    yield
    # There is no public way to take cases away from a test.
    cases: list[Any] = [Case(metafunc, callspec) for callspec in metafunc._calls]
    if len(cases) < 2 or _are_chosen(metafunc.config):
        return
    kept: list[Any] = thorough.keep(metafunc.config, gpu_cases.keep(metafunc.config, cases, least=1), least=1)
    metafunc._calls = [case.callspec for case in kept]
