"""An op is named in five files: its message, a plan in each of two backends, a case of a suite, the generated stub.

A backend that is an extra of its own (``torch``) names those that it has.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from callboard.core import plugins
from callboard.core.op import OPS

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("src/callboard/kernel", "src/callboard/backends", "tests", "tools", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and path.suffix in ("", ".cu", ".py", ".pyi", ".toml") and path != Path(__file__)
    if "backends/torch/" not in path.as_posix()
]
EXAMPLES = ("array.take_along", "blas.hpr2", "cub.arg_sort", "dnn.dropout_backward", "solver.cholesky_inverse")
"""One of each library whose methods are built from messages, and whose operands have no structure of their own."""


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in SOURCES}


@pytest.mark.parametrize("tag", EXAMPLES)
def test_an_op_is_named_in_five_files(texts: dict[str, str], tag: str) -> None:
    library, _, name = tag.partition(".")
    plugins.import_messages(library)
    op: Any = OPS[tag]
    words = re.compile(rf"\b(?:on_|do_|_)?{name}\b|\b{op.__name__}\b")  # on_: what a stand-in does
    found = sorted(file for file, text in texts.items() if (name in text or op.__name__ in text) and words.search(text))
    kernel, backends = f"src/callboard/kernel/{library}", "src/callboard/backends"
    message = f"src/{op.__module__.replace('.', '/')}.py"
    wanted = [
        rf"{backends}/cpu/{library}/\w+\.py",
        rf"{backends}/cuda/{library}/\w+\.py",
        *sorted((re.escape(f"{kernel}/api.pyi"), re.escape(message))),
        rf"tests/conformance/test_{library}\w*\.py",
    ]
    fits = len(found) == len(wanted) and all(map(re.fullmatch, wanted, found))
    assert fits, f"{tag} is named in {found}; what of it is a list that the registry could give?"


@pytest.mark.parametrize("library", ["cub", "dnn"])
def test_every_message_has_a_case(texts: dict[str, str], library: str) -> None:
    """Beside the general one, which only runs it."""
    plugins.import_messages(library)
    suites = "".join(text for file, text in texts.items() if file.startswith(f"tests/conformance/test_{library}"))
    words = set(re.findall(r"\w+", suites))
    assert {op.__name__ for tag, op in OPS.items() if tag.startswith(f"{library}.")} <= words
