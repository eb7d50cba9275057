"""The site: its pages have right links, its navigation has every page, and both builders take it."""

import importlib.util
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

import callboard as cb
from docsite.gallery import rows, write_gallery
from docsite.pictures import picture_in
from docsite.reference import public_names, write_reference
from docsite.staging import changed, links, place, repository_pages, stage
from docsite.terminal import drawn, survival

ROOT = Path(__file__).parents[3]
SKILLS = sorted((ROOT / "ai-skills").glob("*/SKILL.md"))


class Loader(yaml.SafeLoader):
    """Without the objects of Python that mkdocs.yml names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
CONFIG: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)


def leaves(nav: Any) -> list[str]:
    """Pages of a navigation, in its order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in leaves(part)]


def anchors(text: str) -> set[str]:
    """What the builder makes of the headings, as GitHub does."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def broken(folder: Path, page: Path) -> list[str]:
    """Links of a staged page that lead nowhere."""
    found: list[str] = []
    for target in links(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = Path(os.path.normpath(page.parent / file)) if file else page
        if not path.is_file() or not path.is_relative_to(folder):
            found.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(path.read_text("utf-8")):
            found.append(f"{target}: no such heading")
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("site") / "docs"
    stage(ROOT, found)
    write_gallery(ROOT, found / "examples")
    write_reference(ROOT, found / "reference")
    return found


def test_every_link_of_the_site_leads_to_a_page_of_it(folder: Path) -> None:
    pages = sorted(folder.rglob("*.md"))
    assert {page.relative_to(folder).as_posix(): why for page in pages if (why := broken(folder, page))} == {}
    assert len(pages) > 100


def test_a_bad_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# One\n[x](b.md) [y](#two) [`z`](#one) `[code](c.md)` [w](../d.md)\n", "utf-8")
    assert broken(tmp_path, tmp_path / "a.md") == [
        "b.md: no such file",
        "#two: no such heading",
        "../d.md: no such file",
    ]


def test_the_navigation_has_every_page_once(folder: Path) -> None:
    listed = leaves(CONFIG["nav"])
    assert sorted(listed) == sorted(set(listed))
    assert [page for page in listed if not (folder / page).is_file()] == []
    elsewhere = "decisions/", "examples/", "skills/"  # which their own lists name
    left_out = {p.relative_to(folder).as_posix() for p in folder.rglob("*.md")} - set(listed)
    assert {page for page in left_out if not page.startswith(elsewhere)} == set()


def test_the_guides_are_in_five_groups() -> None:
    [guides] = [part["Guides"] for part in CONFIG["nav"] if "Guides" in part]
    assert len(guides) == 5
    assert {Path(page).name for page in leaves(guides)} >= {page.name for page in (ROOT / "docs/guides").glob("*.md")}


def test_links_out_of_docs_are_changed() -> None:
    text = (
        "[a](../../README.md#guides) [b](../../examples/hello.py) [c](arrays.md) [d](../../examples/deploy/rules.yml)"
    )
    linked: set[str] = set()
    assert changed(text, "docs/guides/x.md", ROOT, linked) == (
        "[a](../overview.md#guides) [b](../examples/hello.md) [c](arrays.md) [d](../source/examples/deploy/rules.yml)"
    )
    assert linked == {"examples/deploy/rules.yml"}
    assert place("docs/guides/arrays.md") == "guides/arrays.md"


def test_places_differ() -> None:
    places = list(repository_pages(ROOT).values())
    assert len(places) == len(set(places))


def test_the_reference_has_every_public_name(folder: Path) -> None:
    names = public_names(ROOT / "src/callboard/__init__.pyi")
    text = "\n".join(page.read_text("utf-8") for page in (folder / "reference").glob("*.md"))
    assert [name for name, module in names.items() if f"::: {module}.{name}\n" not in text] == []
    assert len(names) > 300


def test_the_gallery_has_a_page_for_each_example(folder: Path) -> None:
    assert rows(ROOT).keys() == {path.stem for path in (ROOT / "examples").glob("[a-z]*.py")}
    assert "```python" in (folder / "examples" / "hello.md").read_text("utf-8")
    assert {path.stem for path in (ROOT / "docs" / "gallery").glob("*.txt")} <= rows(ROOT).keys()


def test_the_terminal_shows_what_the_start_page_says() -> None:
    page = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert (ROOT / "docs" / "images" / "survive.svg").read_text("utf-8") == survival(page)
    assert "a &lt; b" in drawn("program", [("a < b", "good")])


@pytest.mark.parametrize("page", SKILLS, ids=lambda page: page.parent.name)
@pytest.mark.few(10)
def test_a_skill_says_when_it_is_used(page: Path) -> None:
    text = page.read_text("utf-8")
    found = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", text)
    assert found is not None
    assert found[1] == page.parent.name
    assert len(found[2]) <= 1024
    assert re.findall(r"^## (When to use|Rules|Pitfalls)$", text, re.MULTILINE) == ["When to use", "Rules", "Pitfalls"]
    assert "```python" in text
    assert f"({page.parent.name}/SKILL.md)" in (ROOT / "ai-skills" / "README.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("builder", ["zensical", "mkdocs"])
def test_the_site_is_built(builder: str) -> None:
    for module in (builder, "mkdocstrings", "material"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: scripts/docs installs it")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tools")])
    done = subprocess.run(
        [sys.executable, "-m", "docsite", "--builder", builder],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "site" / "guides" / "serving" / "index.html").is_file()


def test_a_picture_of_half_blocks_is_kept_as_png() -> None:
    picture, text = picture_in("before\n\033[38;5;16;48;5;231m▀\033[38;5;196;48;5;255m▀\033[0m\nafter\n")
    assert text == "before\nafter\n"
    assert picture is not None
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (12, 12)
    rows = zlib.decompress(picture[41:-16])
    assert rows[1:4] + rows[19:22] == bytes([0, 0, 0, 255, 0, 0])
    assert rows[37 * 6 + 1 :][:3] == bytes([255] * 3)
    assert picture_in("text\n") == (None, "text\n")


# -- what a stranger looks for -----------------------------------------------------------------------------------------

TASKS = {
    "survive a lost context": "index.md",
    "dynamic batching of single requests": "guides/serving.md",
    "serve a model over HTTP": "guides/http.md",
    "replace a model while requests run": "guides/hot-swap.md",
    "write my own CUDA kernel": "guides/kernels.md",
    "train on several GPUs": "guides/training.md",
    "share a model between tenants": "guides/fair-share.md",
    "answer questions from documents with citations": "guides/agents.md",
    "develop without a GPU": "guides/backends.md",
    "equivalent of cupy asnumpy": "guides/from-numpy.md",
    "copy an array to another device": "guides/many-devices.md",
    "gunicorn workers fork": "guides/deployment.md",
}
"""What is typed into the search, and the page that has to be among the first five sections found."""


def test_a_stranger_finds_the_page(folder: Path) -> None:
    index = cb.TextIndex()
    for page in (page for page in leaves(CONFIG["nav"]) if not page.startswith(("contributing/", "changelog"))):
        sections = (folder / page).read_text("utf-8").split("\n## ")
        index.upsert([f"{page}#{number}" for number in range(len(sections))], sections)
    found = {task: [str(each).partition("#")[0] for each in index.search(task, 5).ids] for task in TASKS}
    assert {task: pages for task, pages in found.items() if TASKS[task] not in pages} == {}
