"""A stranger's checklist: what people look for, in their words, and the page that the site's search must find.

The index is made of the staged pages as the site's builder makes it, a document for each page and each section with the
headings weighted most, and is asked by lunr, whose JavaScript runs in the reader's browser.
"""

import re
from pathlib import Path

import pytest

from docsite.gallery import write_gallery
from docsite.staging import stage

lunr = pytest.importorskip("lunr", reason="the search's index is made by lunr")
ROOT = Path(__file__).parents[3]
FIRST = 5
"""Results that a reader looks at."""
TASKS = [
    ("install", {"guides/getting-started", "index"}),
    ("model survives device-side assertion", {"index", "guides/supervision", "guides/quarantine"}),
    ("dynamic batching", {"guides/serving"}),
    ("openai api streaming", {"guides/generation", "guides/http"}),
    ("prometheus metrics", {"guides/telemetry", "metrics"}),
    ("fft", {"guides/from-numpy", "guides/arrays", "guides/features", "performance"}),
    ("custom kernel", {"guides/kernels"}),
    ("out of memory", {"guides/memory", "guides/errors", "guides/supervision"}),
    ("kubernetes deploy docker", {"guides/deployment"}),
    ("checkpoint resume training", {"guides/training"}),
    ("vector index search embeddings", {"guides/agents"}),
    ("CuPy", {"guides/if-you-know", "guides/from-numpy"}),
    ("all_reduce", {"guides/many-devices"}),
    ("canary", {"guides/hot-swap", "guides/http"}),
    ("write a test with a fake gpu", {"guides/backends", "contributing/testing-on-gpus"}),
]


def sections(folder: Path) -> list[dict[str, str]]:
    """Pages and their sections: where, heading, text."""
    found: list[dict[str, str]] = []
    for path in sorted(folder.rglob("*.md")):
        page = path.relative_to(folder).with_suffix("").as_posix()
        text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        _, *parts = re.split(r"^#{1,3} (.+)$", text, flags=re.MULTILINE)
        for n, (heading, body) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
            found.append({"where": f"{page}#{n}", "title": heading, "text": body})
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_task_is_found_by_the_search_alone(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    stage(ROOT, folder)
    write_gallery(ROOT, folder / "examples")
    fields = [{"field_name": "title", "boost": 10}, {"field_name": "text", "boost": 1}]
    index = lunr.lunr(ref="where", fields=fields, documents=sections(folder))
    lost: dict[str, list[str]] = {}
    for query, wanted in TASKS:
        pages = [result["ref"].partition("#")[0] for result in index.search(query)]
        first = list(dict.fromkeys(pages))[:FIRST]
        if not wanted & set(first):
            lost[query] = first
    assert lost == {}
