"""The pages: links lead somewhere, files and commands that they name exist.

That ``docs/configuration.md`` names every setting is shown in ``tests/device/test_configure.py``, that
``docs/coverage.md`` is what the launch tables say in ``tests/tools/gpu_check/test_coverage.py``.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from callboard import cli
from callboard.device.config import DeviceConfig, HostConfig

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "ai-skills").rglob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]
)
LIMIT = 30.0

# Files that a page names as what a reader would make.
EXAMPLES = {
    "src/callboard/kernel/image/": "the library that the recipe adds",
    "src/callboard/backends/cpu/image.py": "likewise",
    "src/callboard/backends/cuda/image.py": "likewise",
    "tests/conformance/test_image.py": "likewise",
    "image/": "likewise",
    "utils.py": "what no file may be called",
    "build/gpu-check/": "what scripts/gpu-check makes",
    "site/": "what scripts/docs makes",
    "0001-context-in-a-child-process.md": "how a decision is named",
}
# Set by programs of ours for their own children only.
INTERNAL = {
    "CALLBOARD_CHILD_PATH",
    "CALLBOARD_GPU_CARDS",
    "CALLBOARD_GPU_REPORT",
    "CALLBOARD_GUARDED",
    "CALLBOARD_REACHED_AT",
}


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def links(text: str) -> Iterator[str]:
    """Targets of inline links outside of code."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`(?!\])", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from re.findall(r"\]\(([^)\s]+)\)", text)


def anchors(text: str) -> set[str]:
    """What GitHub makes of the headings."""
    found = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def broken(page: Path, target: str) -> str | None:
    """Why a link leads nowhere, None if it is right; links to other sites are not followed."""
    if re.match(r"[a-z]+:", target):
        return None
    file, _, anchor = target.partition("#")
    path = (page.parent / file).resolve() if file else page
    if not path.exists():
        return f"{target}: no such file"
    if anchor and anchor not in anchors(path.read_text("utf-8")):
        return f"{target}: no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    found = [broken(page, target) for target in links(page.read_text("utf-8"))]
    assert [why for why in found if why] == []


def test_a_bad_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `heading`: one\n[a](other.md) [b](#a-heading-one) [c](#none)\n`[d](code.md)`\n", "utf-8")
    assert list(links(page.read_text("utf-8"))) == ["other.md", "#a-heading-one", "#none"]
    assert broken(page, "other.md") == "other.md: no such file"
    assert broken(page, "#a-heading-one") is None
    assert broken(page, "#none") == "#none: no such heading"


def test_a_decision_is_a_page_at_most() -> None:
    lines = {path.name: path.read_text("utf-8").count("\n") for path in (ROOT / "docs" / "decisions").glob("0*.md")}
    assert {name: number for name, number in lines.items() if number > 60} == {}


# -- files -------------------------------------------------------------------------------------------------------------


@cache
def _files() -> tuple[str, ...]:
    """What is in the repository, generated folders left out."""
    skipped = {".git", ".venv", "__pycache__", ".hypothesis", ".pytest_cache", ".mypy_cache", ".ruff_cache"}
    skipped |= {"build", "site"}
    found: list[str] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in skipped]
        found += [Path(folder, name).relative_to(ROOT).as_posix() for name in [*folders, *files]]
    return tuple(found)


def named_files(text: str) -> set[str]:
    """Paths in backquotes; `<...>`, `*` and the like stand for anything and name no one file."""
    return set(re.findall(r"`([\w.-]+(?:/[\w.-]+)*(?:\.(?:py|md|toml|sh|cu|npz)|/))`", text))


def exists(name: str) -> bool:
    """Whether a file of the repository has this path, or a path that ends so."""
    name = name.rstrip("/")
    return any(path == name or path.endswith(f"/{name}") for path in _files())


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "vocabulary.md"], ids=_id)
def test_named_files_exist(page: Path) -> None:
    assert sorted(n for n in named_files(page.read_text("utf-8")) if n not in EXAMPLES and not exists(n)) == []


def test_a_file_that_does_not_exist_is_found() -> None:
    found = named_files(
        "`device/client/line/port.py` `device/harbour.py` `kernel/` `cb.device` `tests/<package>/` `backends/*/blas/`"
    )
    assert {name for name in found if not exists(name)} == {"device/harbour.py"}


def test_examples_of_names_are_still_no_files() -> None:
    assert [name for name in EXAMPLES if exists(name)] == []


# -- commands ----------------------------------------------------------------------------------------------------------

COMMAND = re.compile(
    r"(?P<script>(?:scripts|\.ci)/[\w-]+)|python3? -m (?P<module>callboard[\w.]*)"
    r"|callboard (?P<sub>[a-z]+(?:-[a-z]+)*)\b"
)
INSTALL = re.compile(r"pip install '?(?:\.|callboard)\[(?P<extras>[\w,-]+)\]")


def code(text: str) -> Iterator[str]:
    """Lines of blocks without a language, and inline code."""
    for block in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield from (line.partition("  #")[0] for line in block.splitlines())
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


@cache
def usage(*command: str) -> str | None:
    """What a program says to ``--help``; None if it is not there."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, *command, "--help"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


@cache
def usage_of_command(*names: str) -> str | None:
    """What ``callboard NAME --help`` prints, in this process; None if there is no such command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        try:
            cli.main([*names, "--help"])
        except SystemExit as e:
            return printed.getvalue() if e.code == 0 else None
    return None


def wrong(line: str) -> str | None:
    """What a line of code names that is not there."""
    found = COMMAND.match(line)
    if found is None:
        return None
    if script := found["script"]:
        if not os.access(ROOT / script, os.X_OK):
            return f"{line}: there is no program {script}"
        if not (ROOT / script).read_text("utf-8").startswith("#!/usr/bin/env python3"):
            return None  # it would install before it answers
        said = usage(script)
    elif module := found["module"]:
        said = usage("-m", module)
    else:
        said = usage_of_command(found["sub"])
        action = line.partition(found["sub"])[2].split()[:1]
        if said and "actions:" in said and action and action[0].isalpha():
            said = usage_of_command(found["sub"], *action)
    if said is None:
        return f"{line}: there is no such command"
    unknown = [option for option in re.findall(r"(?<=\s)--[\w-]+", line) if option not in said]
    return f"{line}: there is no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "vocabulary.md"], ids=_id)
def test_commands_exist(page: Path) -> None:
    found = [wrong(line) for line in code(page.read_text("utf-8"))]
    assert [why for why in found if why] == []


@pytest.mark.parametrize(
    "line, says",
    [
        ("callboard doctor --json", None),
        ("callboard doctor --jsn", "no option --jsn"),
        ("callboard heal", "no such command"),
        ("scripts/heal", "no program scripts/heal"),
        ("scripts/readme-figures --write", None),
        ("scripts/readme-figures --rite", "no option --rite"),
        ("python -m callboard.nowhere", "no such command"),
        ("c = gpu.blas.gemm(a, b)", None),
    ],
)
def test_the_check_of_commands_can_fail(line: str, says: str | None) -> None:
    found = wrong(line)
    assert found is None if says is None else found is not None and says in found


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_extras_exist(page: Path) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = {extra for extras in INSTALL.findall(page.read_text("utf-8")) for extra in extras.split(",")}
    assert named <= set(known)


def test_every_variable_of_the_environment_is_explained() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    sources += [*(path for path in (ROOT / "scripts").iterdir() if path.is_file())]
    sources += [ROOT / "tests" / "conftest.py", ROOT / "tests" / "conformance" / "sessions.py"]
    read = {name for path in sources for name in _variables(path)}
    assert read >= INTERNAL
    explained = _variables(ROOT / "CONTRIBUTING.md") | _variables(ROOT / "docs" / "configuration.md")
    fields = (*DeviceConfig.__struct_fields__, *HostConfig.__struct_fields__)  # whose rule the page gives
    assert read - INTERNAL - {f"CALLBOARD_{field.upper()}" for field in fields} <= explained


def _variables(path: Path) -> set[str]:
    return set(re.findall(r"\bCALLBOARD_[A-Z_]*[A-Z]\b", path.read_text("utf-8")))
