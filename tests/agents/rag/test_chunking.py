"""How documents are cut: offsets, headings, bounds."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callboard as cb
from callboard.agents.rag.passages.chunking import count_tokens
from callboard.agents.rag.passages.sections import sections

TEXT = """# Guide

First sentence. Second one, of e.g. five words! Is it the third?

## Code [here](x.md)

```python
# no heading
a = 1
```

* an item that is a sentence
* another item
"""


def passages(text: str, source: str = "a.md", **options: Any) -> list[cb.Passage]:
    return cb.Chunking(**options).passages(cb.Document(source, text))


@settings(max_examples=50, deadline=None)
@given(
    text=st.text(alphabet="aZ. #`\n\r\t-|é€\U0001f600!", max_size=300),
    by=st.sampled_from(("headings", "sentences", "tokens")),
    size=st.integers(1, 12),
    data=st.data(),
)
def test_passages_are_parts_of_the_text_within_the_size_and_leave_no_word_out(
    text: str, by: Any, size: int, data: Any
) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    found = passages(text, by=by, size=size, overlap=overlap)
    kept = [False] * len(text)
    for each in found:
        assert text[each.start : each.end] == each.text
        assert each.text.strip() == each.text != ""
        assert count_tokens(each.text) <= size
        assert each.line == text.count("\n", 0, each.start) + 1
        kept[each.start : each.end] = [True] * (each.end - each.start)
    if by != "headings":
        assert all(kept[match.start()] for match in re.finditer(r"\w", text))
    assert len({each.id for each in found}) == len(found)
    assert [each.start for each in found] == sorted(each.start for each in found)


def test_a_long_sentence_is_cut_at_lines_without_their_margins() -> None:
    assert [each.text for each in passages("Z\n Z.Z..Z.Z \n  a", size=8, overlap=0)] == ["Z", "Z.Z..Z.Z", "a"]


def test_headings_are_paths_and_code_has_none() -> None:
    found = passages(TEXT, size=40)
    assert [(each.heading, each.line) for each in found] == [("Guide", 3), ("Guide > Code here", 7)]
    assert "# no heading" in found[1].text
    assert found[1].text.endswith("another item")


def test_sentences_are_not_cut_and_the_last_ones_are_repeated() -> None:
    found = passages("One two three. Four five six. Seven eight nine.", by="sentences", size=8, overlap=4)
    assert [each.text for each in found] == ["One two three. Four five six.", "Four five six. Seven eight nine."]


def test_sections_of_restructured_text_and_python() -> None:
    rst = "Title\n=====\n\nabove\n\nPart\n----\n\nbelow\n"
    assert [each.heading for each in passages(rst, "a.rst")] == ["Title", "Title > Part"]
    code = '"""Module."""\n\nclass A:\n    def b(self):\n        pass\n\nasync def c():\n    pass\n'
    assert [(each.heading, each.line) for each in passages(code, "a.py")] == [("", 1), ("A", 3), ("A > b", 4), ("c", 7)]
    assert [each.heading for each in sections("# no heading", "plain")] == [""]


def test_ids_depend_on_content_not_on_place() -> None:
    before = passages(TEXT, size=8, overlap=0)
    after = passages("# New\n\nSomething above.\n\n" + TEXT, size=8, overlap=0)
    assert {each.id for each in before} <= {each.id for each in after}
    assert len({each.id for each in passages("Same. Same. Same.", by="sentences", size=2, overlap=0)}) == 3


@pytest.mark.parametrize("options", [{"by": "pages"}, {"size": 0}, {"overlap": -1}, {"size": 8, "overlap": 8}])
def test_settings_out_of_range_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        cb.Chunking(**options)
