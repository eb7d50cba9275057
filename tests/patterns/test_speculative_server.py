"""SpeculativeDecoder: the tokens are those of plain decoding; ends inside a run; drafts, models and hooks that fail."""

import asyncio
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome
from speculative_lab import VOCABULARY, TableModel, decoder, plain

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.requests.errors import BadBatchResult


def drafts(target: TableModel) -> dict[str, Any]:
    return {
        "none": None,
        "n-gram": cb.NGramDraft(),
        "model": cb.ModelDraft(TableModel(noise=0.3)),
        "useless": lambda prefix, k: [0] * k,
        "perfect": lambda prefix, k: plain(target, prefix, k)[len(prefix) :],
        "empty": lambda prefix, k: [],
    }


@pytest.mark.parametrize("adaptive", [True, False])
@pytest.mark.parametrize("name", ["none", "n-gram", "model", "useless", "perfect", "empty"])
async def test_greedy_tokens_are_those_of_plain_decoding(name: str, adaptive: bool) -> None:
    target = TableModel()
    async with decoder(target, drafts(target)[name], adaptive=adaptive, max_batch=3) as server:
        requests = [cb.Decode([n % VOCABULARY, 1, 2][: 1 + n % 3], max_new_tokens=5 + 7 * n) for n in range(7)]
        found = await asyncio.gather(*(server.submit(each) for each in requests))
    for request, each in zip(requests, found, strict=True):
        assert each.tokens == plain(target, list(request.prefix), request.max_new_tokens or 0)
        assert each.finish == "length"
        assert each.final_len == len(each.tokens)
        assert each.new_tokens == each.tokens[len(request.prefix) :]
    assert target.opened == target.closed == 7
    assert max(len(each) for each in target.passes) == 3


@pytest.mark.parametrize("temperature", [0.5, 1.5])
async def test_the_tokens_of_a_seed_depend_neither_on_draft_nor_batch_nor_k(temperature: float) -> None:
    target = TableModel()
    found = []
    for name, draft in drafts(target).items():
        async with decoder(target, draft, k=2 if name == "model" else 5, adaptive=name != "n-gram") as server:
            request = cb.Decode([1, 2], max_new_tokens=30, temperature=temperature, seed=8)
            others = [server.submit_nowait(cb.Decode([n], max_new_tokens=9)) for n in range(len(found))]
            found.append((await server.submit(request)).tokens)
            await asyncio.gather(*others)
    assert found == [found[0]] * len(found)


async def test_rejection_repeats_its_tokens_where_k_is_fixed() -> None:
    target = TableModel()

    async def tokens(seed: int) -> list[int]:
        async with decoder(target, cb.ModelDraft(TableModel(noise=0.5)), adaptive=False) as server:
            request = cb.Decode([1, 2], max_new_tokens=30, temperature=1.0, seed=seed, acceptance="rejection")
            return (await server.submit(request)).tokens

    assert await tokens(1) == await tokens(1)
    assert len({str(await tokens(seed)) for seed in range(5)}) == 5


@pytest.mark.parametrize("new, finish", [(4, "eos"), (6, "stop")])
async def test_a_text_ends_inside_a_kept_run(new: int, finish: str) -> None:
    """All that is proposed is kept, and the end lies within."""
    target = TableModel(seed=4)
    text = plain(target, [1, 2], 12)
    end = text[: 2 + new]
    assert end[-1] not in end[2:-1], "choose another seed: the end comes earlier"
    options: dict[str, Any] = {"eos": end[-1]} if finish == "eos" else {}
    request = cb.Decode([1, 2], stop=[[9, 9], end[-2:]] if finish == "stop" else ())
    runs: list[list[int]] = []
    perfect = drafts(target)["perfect"]
    async with decoder(target, perfect, k=12, adaptive=False, max_total_tokens=14, **options) as server:
        await server.submit(cb.Decode([1, 2], max_new_tokens=1))  # the first pass proposes nothing
        found = await server.submit(request)
        assert (found.tokens, found.finish, found.iterations) == (end, finish, 1)
        assert (found.draft_tokens, found.accepted_tokens) == (11, new)
        request = cb.Decode([1, 2], on_tokens=runs.append, stop_when=lambda new: len(new) == 3)
        assert (await server.submit(request)).finish == "stop"
        assert runs == [text[2:5]]


async def test_a_stop_that_reaches_into_the_prefix_is_none() -> None:
    target = TableModel()
    text = plain(target, [1, 2], 3)
    async with decoder(target) as server:
        found = await server.submit(cb.Decode([1, 2], max_new_tokens=3, stop=[text[1:3]]))
    assert found.tokens == text


async def test_the_length_is_bounded_by_both_limits_and_no_token_is_proposed_beyond() -> None:
    target = TableModel()
    asked: list[int] = []

    def draft(prefix: list[int], k: int) -> list[int]:
        asked.append(len(prefix) + k)
        return plain(target, prefix, k)[len(prefix) :]

    async with decoder(target, draft, adaptive=False, max_total_tokens=10) as server:
        assert (await server.submit(cb.Decode([1, 2]))).final_len == 10
        assert (await server.submit(cb.Decode([1, 2], max_new_tokens=3))).final_len == 5
        assert max(asked) == 9
        with pytest.raises(ValueError, match="the prefix has 10 tokens, and max_total_tokens is 10: no token fits"):
            await server.submit(cb.Decode([1] * 10))
        with pytest.raises(TypeError, match="decodes a Decode, but was given 5"):
            await server.submit(5)  # type: ignore[arg-type]


async def test_a_stream_gives_what_is_certain_and_leaving_it_cancels_the_request() -> None:
    target = TableModel()
    perfect = drafts(target)["perfect"]
    async with decoder(target, perfect) as server:
        streamed = [token async for token in server.stream(cb.Decode([1, 2], max_new_tokens=20))]
        assert streamed == plain(target, [1, 2], 20)[2:]
        stream = server.stream(cb.Decode([1, 2], max_new_tokens=1000))
        async for _ in stream:
            break
        await stream.aclose()
        assert server.stats().cancelled == 1
        got: list[int] = []
        with pytest.raises(ZeroDivisionError):
            await collect(server.stream(cb.Decode([1], stop_when=lambda new: bool(len(new) == 3 and 1 // 0))), got)
        assert got == plain(target, [1], len(got))[1:]
        assert len(got) < 3
    assert target.opened == target.closed == 3


async def collect(stream: Any, into: list[int]) -> None:
    async for token in stream:
        into.append(token)  # noqa: PERF401 -- what came before an error counts


class Broken(cb.Draft):
    """A draft that fails in a way of the test's choosing."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.ended = 0

    def begin(self) -> Any:
        if self.how == "begin":
            raise OSError("no state")

    def end(self, state: Any) -> None:
        self.ended += 1
        if self.how == "end":
            raise OSError("no end")

    async def propose(self, asks: list[Any]) -> Any:
        if self.how == "short":
            return []
        if self.how == "token":
            return [cb.Proposal([10_000])] * len(asks)
        if self.how == "nonsense":
            return [object()] * len(asks)
        raise OSError("gone")


@pytest.mark.parametrize("how", ["begin", "end", "raise", "short", "token", "nonsense"])
async def test_a_text_whose_draft_fails_goes_on_without_it(how: str) -> None:
    target, draft = TableModel(), Broken(how)
    async with decoder(target, draft, adaptive=False) as server:
        found = await asyncio.gather(*(server.submit(cb.Decode([n], max_new_tokens=6)) for n in range(3)))
        stats = server.stats()
    assert [each.tokens for each in found] == [plain(target, [n], 6) for n in range(3)]
    assert stats.draft_failures == 3
    assert draft.ended == (0 if how == "begin" else 3)
    assert target.closed == 3


@pytest.mark.parametrize("losses", [[], [4], [0], [4, 9]])
async def test_a_lost_context_costs_no_tokens(losses: list[int]) -> None:
    target = TableModel()
    left = list(losses)

    async def losing(*given: Any) -> Any:
        if len(target.passes) in left[:1]:
            left.pop(0)
            raise cb.ContextPoisoned("lost")
        return await target.forward(*given)

    request = cb.Decode([1, 2], max_new_tokens=20, temperature=0.8, seed=1)
    async with decoder(cb.Model(losing, target.begin)) as server:
        found = await outcome(server.submit(request))
    async with decoder(TableModel()) as server:
        expected = await server.submit(request)
    assert left == []
    assert found == expected
    assert target.opened == target.closed == 1 + len(losses)


async def test_a_pass_that_fails_ends_what_cannot_be_done_and_the_next_one_runs() -> None:
    target = TableModel()

    async def fails(states: Any, tokens: Any, rows: Any) -> Any:
        if any(0 in each for each in tokens):
            raise ZeroDivisionError
        return [] if any(7 in each for each in tokens) else await target.forward(states, tokens, rows)

    async with decoder(cb.Model(fails, target.begin), max_batch=2) as server:
        futures = [server.submit_nowait(cb.Decode([n], max_new_tokens=1)) for n in (0, 1, 7, 2, 3)]
        found = [await outcome(each) for each in futures]
    kinds = [type(each) for each in found]
    assert kinds == [ZeroDivisionError, cb.Decoded, BadBatchResult, cb.Decoded, cb.Decoded]
    assert target.opened == target.closed == 7


async def test_what_a_hook_raises_and_logits_that_are_none_end_one_text() -> None:
    target = TableModel()
    target.table[5, :] = np.nan

    def wrong(*_: Any) -> Any:
        raise KeyError("hook")

    async with decoder(target, cb.NGramDraft()) as server:
        found = await asyncio.gather(
            server.submit(cb.Decode([1, 2], max_new_tokens=3, adjust=wrong)),
            server.submit(cb.Decode([1, 2], max_new_tokens=3, stop_when=wrong)),
            server.submit(cb.Decode([1, 2], max_new_tokens=3, on_tokens=wrong)),
            server.submit(cb.Decode([5, 5], max_new_tokens=3)),
            server.submit(cb.Decode([1, 2], max_new_tokens=1)),
            return_exceptions=True,
        )
    assert [type(each) for each in found] == [KeyError, KeyError, KeyError, ValueError, cb.Decoded]
    assert "NaN" in str(found[3])


async def test_a_state_that_cannot_be_made_fails_its_text() -> None:
    target = TableModel()
    states = iter([OSError("full"), target.begin()])

    def begin() -> Any:
        state = next(states)
        if isinstance(state, OSError):
            raise state
        return state

    async with decoder(cb.Model(target.forward, begin)) as server:
        found = [await outcome(server.submit(cb.Decode([1], max_new_tokens=2))) for _ in range(2)]
    assert [type(each) for each in found] == [OSError, cb.Decoded]


async def test_a_grammar_is_kept_to_inside_proposals() -> None:
    """Only even tokens after odd ones and the other way round; the draft knows nothing of it."""
    target = TableModel()

    def alternating(tokens: list[int], logits: Any) -> Any:
        return np.where(np.arange(VOCABULARY) % 2 != tokens[-1] % 2, logits, -np.inf)

    found = []
    for draft in (None, cb.ModelDraft(TableModel())):
        async with decoder(target, draft, adaptive=False) as server:
            request = cb.Decode([1], max_new_tokens=20, adjust=alternating, temperature=1.0, seed=2)
            found.append((await server.submit(request)).tokens)
    assert found[0] == found[1]
    assert all(a % 2 != b % 2 for a, b in zip(found[0], found[0][1:], strict=False))


async def test_k_of_a_request_and_figures_by_position() -> None:
    target = TableModel()
    right = [True, True, False]

    def draft(prefix: list[int], k: int) -> list[int]:
        best = plain(target, prefix, k)[len(prefix) :]
        return [t if ok else (t + 1) % VOCABULARY for t, ok in zip(best, right, strict=False)]

    async with decoder(target, draft, k=3, adaptive=False) as server:
        await server.submit(cb.Decode([1], max_new_tokens=1))  # the first pass proposes nothing
        found = await server.submit(cb.Decode([1], max_new_tokens=9))
        assert (found.iterations, found.draft_tokens, found.accepted_tokens) == (3, 8, 6)
        stats = server.stats()
        assert stats.acceptance_by_position == (1.0, 1.0, 0.0)
        assert stats.mean_accepted_length == 3.0
        assert (stats.iterations, stats.new_tokens, stats.draft_tokens, stats.accepted_tokens) == (4, 10, 8, 6)
        off = await server.submit(cb.Decode([1], max_new_tokens=9, k=0))
        assert (off.iterations, off.draft_tokens, off.tokens) == (9, 0, found.tokens)


async def test_the_speedup_is_what_plain_passes_would_have_taken() -> None:
    """A pass takes 1 s in virtual time, whatever it holds; the draft takes 0.25 s."""
    target, clock = TableModel(), ManualClock()
    forward = target.forward

    async def slow(*given: Any) -> Any:
        found = await forward(*given)
        clock.advance(1.0)
        return found

    async def draft(prefix: list[int], k: int) -> list[int]:
        clock.advance(0.25)
        return plain(target, prefix, k)[len(prefix) :]

    async with decoder(cb.Model(slow, target.begin), draft, k=3, clock=clock) as server:
        found = await server.submit(cb.Decode([1, 2], max_new_tokens=41))
        speedup = server.stats().speedup
    # The first pass takes the prefix, the next two measure: 38 tokens come in 10 passes with a draft.
    assert found.iterations == 13
    assert speedup == pytest.approx(39 / (1 + 10 * 1.25), rel=0.06)


async def test_a_useless_draft_is_not_asked_for_long() -> None:
    target, clock, asked = TableModel(), ManualClock(), []
    forward = target.forward

    async def slow(states: Any, tokens: Any, rows: Any) -> Any:
        found = await forward(states, tokens, rows)
        clock.advance(1.0 + 0.1 * sum(rows))
        return found

    async def draft(prefix: list[int], k: int) -> list[int]:
        asked.append(k)
        clock.advance(0.2 * k)
        return [(plain(target, prefix, 1)[-1] + 1) % VOCABULARY] * k

    async with decoder(cb.Model(slow, target.begin), draft, clock=clock) as server:
        for n in range(4):
            await server.submit(cb.Decode([n, 2], max_new_tokens=300))
        assert len(asked) < 20
        assert server.stats().speedup > 0.98


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"k": -1}, "k must be at least 0, but is -1"),
        ({"max_total_tokens": 1}, "max_total_tokens must be at least 2, but is 1"),
        ({"max_batch": 0}, "max_batch must be at least 1, but is 0"),
        ({"max_queue": 0}, "max_queue must be at least 1, but is 0"),
    ],
)
def test_settings_that_are_none(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cb.SpeculativeDecoder(TableModel(), **wrong)


@pytest.mark.parametrize(
    "wrong, says",
    [
        ({"prefix": []}, "prefix is empty"),
        ({"prefix": [1], "max_new_tokens": 0}, "max_new_tokens must be at least 1, but is 0"),
        ({"prefix": [1], "temperature": -1}, "temperature must be a number of at least 0, but is -1"),
        ({"prefix": [1], "temperature": float("nan")}, "but is nan"),
        ({"prefix": [1], "k": -2}, "k must be at least 0, but is -2"),
        ({"prefix": [1], "stop": [[]]}, "stop has an empty sequence"),
        ({"prefix": [1], "acceptance": "all"}, "'all' is not a valid Acceptance"),
    ],
)
def test_requests_that_are_none(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cb.Decode(**wrong)


def test_a_target_has_two_methods() -> None:
    with pytest.raises(TypeError, match=r"it must have forward\(states, tokens, rows\) and begin\(\)"):
        cb.SpeculativeDecoder(lambda: 0)  # type: ignore[arg-type]
