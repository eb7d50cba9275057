"""README.md, docs and ai-skills: every Python block runs as a reader would run it, and prints what the page shows.

The figures in README.md are checked in ``tests/tools/gpu_check/test_figures.py``, the tables of the guides in
``tests/test_guides.py``.
"""

import doctest
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
LIMIT = 100.0
SEPARATOR = "\x1e"
CHEAP = {"OPENBLAS_NUM_THREADS": "1", "CALLBOARD_STANDBY": "none"}  # a standby would be a process more per loss

pytestmark = pytest.mark.timeout(LIMIT + 20)


def loaded(name: str) -> ModuleType:
    """A program of ``scripts/`` as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = sys.modules[loader.name] = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


DOCS = loaded("doc-programs")
PROGRAMS: list[Any] = DOCS.all_programs()

RUN = """
import runpy, sys

for path in sys.argv[2:]:
    runpy.run_path(path, run_name="__main__")
    print(sys.argv[1], end="")
"""
"""Programs of a page share an interpreter: most of their time would be imports."""


def run(programs: dict[str, str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run programs, given by name, one after the other; a separator follows the output of each."""
    paths = [folder / f"{name}.py" for name in programs]  # files: a traceback shows their lines
    for path, source in zip(paths, programs.values(), strict=True):
        path.write_text(source, "utf-8")
    found = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN, SEPARATOR, *paths],
        env={**os.environ, "PYTHONPATH": found, **CHEAP},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def differs(wanted: str | None, printed: str) -> bool:
    """Whether a page shows something else than its program prints."""
    return wanted is not None and not doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)


@pytest.mark.few(3)
@pytest.mark.parametrize("page", sorted({program.page for program in PROGRAMS}))
def test_programs_of_a_page_run(page: str, tmp_path: Path) -> None:
    programs = [program for program in PROGRAMS if program.page == page]
    done = run({program.name: program.source for program in programs}, tmp_path)
    assert done.returncode == 0, done.stderr
    for unseen in (
        "Exception ignored",
        "Exception in thread",
        "never retrieved",
    ):  # failures that are logged may be there
        assert unseen not in done.stderr
    *outputs, rest = done.stdout.split(SEPARATOR)
    assert rest == ""
    for program, printed in zip(programs, outputs, strict=True):
        if differs(program.output, printed):
            assert printed == program.output, program.name


def test_a_bad_block_fails(tmp_path: Path) -> None:
    done = run({"good": "", "bad": DOCS.framed("await gpu.nothing()")}, tmp_path)
    assert done.returncode == 1
    assert "bad.py" in done.stderr


def test_every_block_is_found() -> None:
    sources = "".join(program.source for program in PROGRAMS)
    for page in DOCS.PAGES:
        blocks = [block["code"] for block in DOCS.BLOCK.finditer(page.read_text("utf-8"))]
        assert len(blocks) == page.read_text("utf-8").count("```python")
        assert [block for block in blocks if block.splitlines()[-1] not in sources] == []
    assert len(DOCS.PAGES) > 5


PAGE = """
```python
import numpy
```

Fragments:

```python
a = 1
print(a)
```

```text
1
```

```python
print(a + 1)
```
```text
2
```
"""


def test_the_fragments_of_a_page_are_one_program() -> None:
    whole, fragments = DOCS.programs("page", PAGE)
    assert (whole.name, whole.source, whole.output) == ("page_3", "import numpy\n", None)
    assert (fragments.name, fragments.output) == ("page", "1\n2\n")
    assert fragments.source.index("a = 1") < fragments.source.index("print(a + 1)")


def test_another_output_is_found() -> None:
    assert differs("1\n2\n", "1\n")
    assert differs("", "1\n")
    assert not differs("generation ...\n", "generation 7\n")
    assert not differs(None, "1\n")


def test_the_first_example_has_twelve_lines() -> None:
    first = PROGRAMS[0].source
    assert "cb.sync" in first
    assert len([line for line in first.splitlines() if line.strip()]) <= 12


def test_the_readme_is_short() -> None:
    before, heading, guides = README.partition("\n## Guides\n")
    assert heading
    assert len(before.split()) <= 900
    assert guides.count("](docs/guides/") == len(list((ROOT / "docs" / "guides").glob("*.md")))
