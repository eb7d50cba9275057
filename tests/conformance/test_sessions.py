"""Number of examples per session: a third where another's numbers repeat, and in a plain run."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import thorough

ALL, PART = 20, 7


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    numbers: list[int] = []
    yield numbers
    repeats = request.node.callspec.params["session"] in thorough.REPEATS
    assert len(numbers) == (PART if repeats or thorough.is_plain(request.config) else ALL)


@settings(max_examples=ALL, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers())
def test_examples(session: Any, drawn: list[int], number: int) -> None:
    assert session.get(session.put([number % 2**31])).tolist() == [number % 2**31]
    drawn.append(number)
