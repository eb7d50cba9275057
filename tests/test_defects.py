"""``docs/contributing/defects.md``: each defect of others has a test here, and each test that it names exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "contributing" / "defects.md"
HEAD = ("| defect | where | test here |", "|---|---|---|")
REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def rows_of(page: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The defect of each row, and the files and names of its tests."""
    for line in page.splitlines():
        if line.startswith("|") and line not in HEAD:
            _, defect, _, tests, _ = (cell.strip() for cell in re.split(r"(?<!\\)\|", line))
            found = REFERENCE.findall(tests)
            assert ", ".join(f"`{file}::{name}`" for file, name in found) == tests, f"not a list of tests: {tests}"
            yield defect, found


@cache
def names_in(file: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.parse((TESTS / file).read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return frozenset(name for name in found if name.lower().startswith("test"))


ROWS = list(rows_of(PAGE.read_text("utf-8")))


def test_no_defect_is_there_twice() -> None:
    defects = [defect for defect, _ in ROWS]
    assert len(defects) == len(set(defects)) > 50


@pytest.mark.parametrize("defect, tests", ROWS, ids=[defect[:40] for defect, _ in ROWS])
def test_a_defect_has_tests(defect: str, tests: list[tuple[str, str]]) -> None:
    assert tests, defect
    missing = [f"{file}::{name}" for file, name in tests if not (TESTS / file).exists() or name not in names_in(file)]
    assert missing == []


def test_a_row_that_names_no_test_is_found() -> None:
    with pytest.raises(AssertionError, match="not a list of tests"):
        list(rows_of("| a | b | somewhere |"))
    assert dict(rows_of("| a | b | `x/y.py::test_z` |")) == {"a": [("x/y.py", "test_z")]}
