"""``docs/contributing/vocabulary.md``: every word is there once, every name in it exists, nothing is left out."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "vocabulary.md"
WORDS = Path(__file__).parent / "data" / "seed_words.txt"

AREAS = {
    *("CUDA primitives", "deep learning", "multi-device", "serving", "training", "agents", "realtime"),
    "observability",
}
REFERENCE = r"`(?:[\w/.-]+)\.(?:pyi?|toml)(?::[\w.-]+)?`"
HERE = re.compile(rf"{REFERENCE}(?: .+)?")
REPLACED = re.compile(rf"replaced by {REFERENCE}: .+")
LATER = re.compile(r"later: (?P<area>.+)")


class Row(NamedTuple):
    table: str
    word: str
    where: str

    def __str__(self) -> str:
        return f"{self.table}: {self.word}"


def rows_of(page: str) -> Iterator[Row]:
    """The rows of the tables below second-level headings."""
    table = ""
    for line in page.splitlines():
        if line.startswith("## "):
            table = line.removeprefix("## ").replace("`", "")
        elif table and (found := re.fullmatch(r"\| `(.+?)` \| (.+) \|", line)):
            yield Row(table, *found.groups())
        elif table and line.startswith("|") and line not in ("| word | here |", "|---|---|"):
            raise AssertionError(f"not a row of the vocabulary: {line}")


def words_of(text: str) -> list[tuple[str, str]]:
    """Area and word of each line; the comment at the top belongs to no area."""
    found: list[tuple[str, str]] = []
    _, *areas = re.split(r"\n\n# ", text)
    for area in areas:
        title, *words = area.splitlines()
        found += [(title, word) for word in words if word]
    return found


def missing(reference: str, root: Path = ROOT) -> str | None:
    """Why a reference ``file:Name.member`` leads nowhere, None if it is right."""
    file, _, name = reference.partition(":")
    path = next((p for p in (root / "src" / "callboard" / file, root / file) if p.is_file()), None)
    if path is None:
        return f"there is no file {file}"
    if not name:
        return None
    known = _toml_names(path) if path.suffix == ".toml" else _python_names(path)
    return None if name in known else f"{file} has no {name}"


@cache
def _python_names(path: Path) -> frozenset[str]:
    """``Name`` and ``Class.member`` of what a file defines (not of what it imports)."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        found.update(_bound(node))
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{member}" for child in node.body for member in _bound(child))
            for method in (child for child in node.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)):
                found.update(f"{node.name}.{attribute}" for attribute in _set_on_self(method))
    return frozenset(found)


def _bound(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _set_on_self(method: ast.AST) -> Iterator[str]:
    for node in ast.walk(method):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


def _toml_names(path: Path) -> frozenset[str]:
    found: set[str] = set()

    def walk(table: object, prefix: str) -> None:
        if isinstance(table, dict):
            for key, value in table.items():
                found.add(f"{prefix}{key}")
                walk(value, f"{prefix}{key}.")

    walk(tomllib.loads(path.read_text("utf-8")), "")
    return frozenset(found)


ROWS = list(rows_of(PAGE.read_text("utf-8")))


def test_every_word_of_the_list_is_in_the_vocabulary_and_no_other() -> None:
    listed = words_of(WORDS.read_text("utf-8"))
    assert len(listed) > 900
    assert Counter(listed) == Counter((row.table, row.word) for row in ROWS)


def test_words_stand_once_and_in_order() -> None:
    for table in dict.fromkeys(row.table for row in ROWS):
        words = [row.word for row in ROWS if row.table == table]
        assert words == sorted(set(words), key=lambda word: (word.casefold(), word)), table


def test_every_row_has_one_of_the_three_forms() -> None:
    bad = []
    for row in ROWS:
        later = LATER.fullmatch(row.where)
        known = later["area"] in AREAS if later else HERE.fullmatch(row.where) or REPLACED.fullmatch(row.where)
        if not known:
            bad.append(f"{row} -> {row.where}")
    assert not bad


def test_every_name_exists() -> None:
    bad = [
        f"{row} -> {why}"
        for row in ROWS
        for reference in re.findall(REFERENCE, row.where)
        if (why := missing(reference.strip("`"))) is not None
    ]
    assert not bad


@pytest.mark.parametrize(
    "reference, why",
    [
        ("core/ref/handle.py:GpuRef.access", None),
        ("core/errors.py:DriverError.code", None),
        ("pyproject.toml:project.optional-dependencies.cuda13", None),
        ("core/ref/handle.py:GpuRef.nowhere", "core/ref/handle.py has no GpuRef.nowhere"),
        ("core/ref/handle.py:nowhere", "core/ref/handle.py has no nowhere"),
        ("core/errors.py:AccelError", "core/errors.py has no AccelError"),  # imported there, not defined
        ("core/nowhere.py", "there is no file core/nowhere.py"),
        ("pyproject.toml:project.optional-dependencies.cuda11", "pyproject.toml has no project.optional-dependencies"),
    ],
)
def test_the_check_can_fail(reference: str, why: str | None) -> None:
    found = missing(reference)
    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_row_in_another_form_is_refused() -> None:
    with pytest.raises(AssertionError, match="not a row"):
        list(rows_of("## Core\n\n| word | here |\n|---|---|\n| GpuRef | somewhere |\n"))
