"""Token ids that clients send: each that no model has is refused, with its place, before the model is asked."""

from typing import Any

import pytest
from generation_lab import EOS, Writer, chat, decode, encode
from serve_lab import client_of

import callboard as cb
from callboard.serve import App

HUGE = 10**25


def app_of(vocabulary: int | None, asked: list[Any]) -> App:
    """An app with a model of texts and one of vectors, which note what they are asked."""
    app = App("ids")

    def embed(inputs: list[Any]) -> list[list[float]]:
        asked.extend(inputs)
        return [[1.0] for _ in inputs]

    class Noting(Writer):
        async def __call__(self, slots: list[Any]) -> list[Any]:
            asked.extend(slot.item.prefix for slot in slots if slot.fresh)
            return await super().__call__(slots)

    server = cb.ContinuousBatchingServer[cb.Decode, int](Noting())
    options: Any = {"vocabulary": vocabulary, "takes": ["logit_bias"], "chat": chat, "eos": EOS}
    app.add_decoder("writer", server, encode=encode, decode=decode, **options)
    app.add_embeddings("vectors", embed, vocabulary=vocabulary, tokenize=None if vocabulary else lambda given: given)
    return app


WRONG: list[tuple[Any, str]] = [
    ([5, -1], "[1]: -1 is not a token: they are whole numbers from 0 to "),
    ([[1, 2], [3, 4, -7]], "[1][2]: -7 is not a token"),
    ([HUGE], "[0]: a number of 84 bits is not a token"),
    ([1, 1 << 31], "[1]: 2147483648 is not a token: they are whole numbers from 0 to "),
    ([True], "[0]"),
    ([[1], [False]], "[1][0]"),
    ([1, 2.0], "[1]"),
    ([1.5], "[0]"),
    ([[1e30]], "[0][0]"),
    ([[[1]]], "[0][0]"),
    ([None], "[0]"),
    ([{"a": 1}], "[0]"),
    ([1, "a"], ""),
    ([1, [2]], ""),
    ([], ""),
    ([[]], ""),
    ([[1], []], ""),
]


@pytest.mark.parametrize("vocabulary", [None, 256])
async def test_what_is_no_token_is_refused_before_a_model_is_asked(vocabulary: int | None) -> None:
    asked: list[Any] = []
    wrong = [*WRONG, *([] if vocabulary is None else [([255, 256], "[1]: 256 is not a token: they are whole numbers")])]
    async with client_of(app_of(vocabulary, asked)) as http:
        for given, says in wrong:
            for stream in (False, True):
                body = {"model": "writer", "prompt": given, "stream": stream}
                answer = await http.post("/v1/completions", json=body)
                assert answer.status_code == 400, (given, answer.text)
                assert says in answer.text, (given, answer.text)
            answer = await http.post("/v1/embeddings", json={"model": "vectors", "input": given})
            assert answer.status_code == 400, (given, answer.text)
            assert says in answer.text, (given, answer.text)
        assert not asked
        last = (1 << 31) - 1 if vocabulary is None else vocabulary - 1
        for given in ([0, last], [[0], [last]], "text", ["te", "xt"]):
            answer = await http.post("/v1/embeddings", json={"model": "vectors", "input": given})
            assert answer.status_code == 200, answer.text
        answer = await http.post("/v1/completions", json={"model": "writer", "prompt": [97, 98]})
        assert answer.json()["choices"][0]["text"] == "ba"
        for bias, status in (({"255": 1}, 200), ({"-1": 1}, 400), ({"a": 1}, 400), ({"1.0": 1}, 400), ({"": 1}, 400)):
            body = {"model": "writer", "prompt": [97], "logit_bias": bias}
            assert (await http.post("/v1/completions", json=body)).status_code == status, bias
            chatted = {"model": "writer", "messages": [{"role": "user", "content": "a"}], "logit_bias": bias}
            assert (await http.post("/v1/chat/completions", json=chatted)).status_code == status, bias
        for bias in ({str(last + 1): 1}, {"9" * 5000: 1}):
            answer = await http.post("/v1/completions", json={"model": "writer", "prompt": [97], "logit_bias": bias})
            assert (answer.status_code, "is not a token" in answer.text) == (400, True)


@pytest.mark.parametrize("vocabulary, kind", [(0, ValueError), (-5, ValueError), (2.5, TypeError), ("many", TypeError)])
def test_a_vocabulary_that_is_no_number_of_tokens(vocabulary: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="vocabulary"):
        app_of(vocabulary, [])
