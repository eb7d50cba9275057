"""Cases that will not run are not made; a test keeps one, and what is left out is counted once."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests import early, gpu_cases, thorough

GPU = SimpleNamespace(name="gpu")
SLOW = SimpleNamespace(name="slow")


def made(config: Any, *marks: list[Any], own: tuple[str, ...] = ()) -> list[int]:
    """The numbers of the cases of a test that are made; its cases and the test itself have marks."""
    calls = [SimpleNamespace(marks=found, params={"number": i}, indices={}) for i, found in enumerate(marks)]
    closest = {name: SimpleNamespace(name=name) for name in own}.get
    definition = SimpleNamespace(path="test_x.py", name="test", get_closest_marker=closest)
    metafunc: Any = SimpleNamespace(_calls=calls, definition=definition, config=config)
    hook = early.pytest_generate_tests(metafunc)
    next(hook)
    with pytest.raises(StopIteration):
        next(hook)
    return [call.params["number"] for call in metafunc._calls]


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(gpu_cases, "_why_not", lambda: "no driver")
    deselected: list[Any] = []
    return SimpleNamespace(
        option=SimpleNamespace(keyword="", markexpr=""),
        args=["tests"],
        args_source=pytest.Config.ArgsSource.TESTPATHS,
        getoption=lambda name: False,
        stash=pytest.Stash(),
        hook=SimpleNamespace(pytest_deselected=lambda items: deselected.extend(items)),
        deselected=deselected,
    )


def counted(config: Any) -> tuple[int, int]:
    found = config.stash.get(gpu_cases.LEFT_OUT, (0, ""))[0], config.stash.get(thorough.LEFT_OUT, 0)
    assert sum(found) == len(config.deselected)
    return found


def test_cases_for_a_gpu_and_slow_ones_are_counted(config: Any) -> None:
    assert made(config, [], [GPU], [SLOW], [], [GPU, SLOW]) in ([0], [3])
    assert counted(config) == (2, 2)


@pytest.mark.parametrize("own, left", [("gpu", (2, 0)), ("slow", (0, 2))])
def test_a_test_keeps_a_case_for_the_rules_that_see_items(config: Any, own: str, left: tuple[int, int]) -> None:
    assert made(config, [], [], [], own=(own,)) == [0]
    assert counted(config) == left


def test_of_very_many_cases_a_number_are_made(config: Any) -> None:
    assert len(made(config, *([] for _ in range(120)))) == 1
    assert counted(config) == (0, 119)


@pytest.mark.parametrize("chosen", ["keyword", "markexpr", "args"])
def test_where_cases_are_chosen_all_are_made(config: Any, chosen: str) -> None:
    if chosen == "args":
        config.args = ["tests/test_x.py::test[1]"]
    else:
        setattr(config.option, chosen, "gpu")
    assert made(config, [], [GPU], [SLOW]) == [0, 1, 2]
    assert counted(config) == (0, 0)
