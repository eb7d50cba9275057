"""Tokens of texts: those of the package tokenizers."""

import random
from pathlib import Path

import pytest

import callboard as cb
from callboard.serve.bundled.weights import model_folder
from callboard.serve.bundled.wordpiece import MAX_TOKENS, Tokens
from callboard.serve.errors import BadRequest

try:
    FOLDER = model_folder()
except cb.BackendUnavailable as e:
    pytest.skip(str(e), allow_module_level=True)

TOKENS = Tokens(FOLDER)
ODD = "aàéÅßİıſﬁΣςñ한글が漢字\U00020000🙂\u200d\ufe0f\ufffd\0\x0b\x85\t\n\r \u00a0\u2028\u3000\u0301\u0327\u1e9e\ue000"
ODD += "-_'\"$^`|~“”—#"


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("", []),
        ("Hello, world!", [7592, 1010, 2088, 999]),
        ("Café\tÜBER\nembeddings", [7668, 19169, 7861, 8270, 4667, 2015]),
        ("漢字", [1904, 100]),
        ("a[SEP]b [sep]", [1037, 102, 1038, 1031, 19802, 1033]),
        ("x" * 101, [100]),
        ("\x00\ufffd", []),
    ],
)
def test_known_texts(text: str, tokens: list[int]) -> None:
    assert TOKENS(text) == [101, *tokens, 102]


def test_as_the_package_tokenizers() -> None:
    package = pytest.importorskip("tokenizers", reason="what they are compared with")
    theirs = package.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    theirs.no_padding()
    theirs.enable_truncation(MAX_TOKENS)
    text = Path(__file__).read_text("utf-8")
    draw = random.Random(1)
    texts = [text, *(text[at : at + 300] for at in range(0, len(text), 300))]
    texts += ["".join(draw.choices(ODD, k=draw.randrange(12))) for _ in range(2000)]
    texts += [f"a{chr(code)}b" for code in range(0x20, 0x370)]
    assert [each for each in texts if TOKENS(each) != theirs.encode(each).ids] == []


def test_lists_are_checked() -> None:
    assert TOKENS([101, 7592, 102]) == [101, 7592, 102]
    for wrong, says in (([], "there are 0 tokens"), ([5] * 257, "takes 1 to 256"), ([-1], "-1 is not a token")):
        with pytest.raises(BadRequest, match=says):
            TOKENS(wrong)
