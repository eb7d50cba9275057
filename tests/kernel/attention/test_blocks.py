"""Assignment of pages to sequences: after any operation, each sequence reads back the tokens written to it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from callboard.core.errors import OutOfMemory, ShapeError
from callboard.kernel.attention.cache.blocks import BlockPool, Request

BLOCKS, SIZE = 7, 3
TOKENS = st.lists(st.integers(0, 1), max_size=8)
"""Of two kinds: prompts that begin alike are common."""


class Sequences(RuleBasedStateMachine):
    """A pool beside what its sequences should hold, and pages that hold what was written."""

    sequences = Bundle("sequences")

    @initialize(sharing=st.booleans())
    def begin(self, sharing: bool) -> None:
        self.pool = BlockPool(BLOCKS, SIZE, sharing)
        self.pages: list[list[int | None]] = [[None] * SIZE for _ in range(BLOCKS)]
        self.expected: dict[int, list[int]] = {}

    @rule(target=sequences, tokens=TOKENS, salt=st.sampled_from([b"", b"tenant"]), named=st.booleans())
    def allocate(self, tokens: list[int], salt: bytes, named: bool) -> int:
        number, shared = self.pool.open(tokens if named else None, salt)
        assert shared <= max(0, len(tokens) - 1)  # the last one is left to be computed
        self.expected[number] = tokens[:shared]
        return number

    @rule(target=sequences, sequence=sequences)
    def fork(self, sequence: int) -> int:
        number = self.pool.fork(sequence)
        self.expected[number] = list(self.expected[sequence])
        return number

    @rule(
        chosen=st.lists(sequences, min_size=1, max_size=3, unique=True), tokens=TOKENS, named=st.booleans(),
        written=st.booleans(),
    )  # fmt: skip
    def extend(self, chosen: list[int], tokens: list[int], named: bool, written: bool) -> None:
        new = tuple(tokens)
        before = {number: self.pool.table(number) for number in chosen}
        needed = sum(self.pool.needed(number, len(new)) for number in chosen)
        requests = [Request(number, len(new), new if named else None) for number in chosen]
        available = self.pool.available
        try:
            made = self.pool.extend(requests)
        except OutOfMemory:
            assert needed > available  # at most: of those who share a page and all write to it, one keeps it
            assert before == {number: self.pool.table(number) for number in chosen}
            return
        with pytest.raises(ShapeError, match="has a step that is not written"):
            self.pool.close(chosen[0])
        assert len(set(made.slots)) == len(made.slots) == len(new) * len(chosen)
        for source, target in made.copies:
            self.pages[target] = list(self.pages[source])
        for slot, token in zip(made.slots, new * len(chosen), strict=True):
            self.pages[slot // SIZE][slot % SIZE] = token
        if written:
            self.pool.commit(made)
            for number in chosen:
                self.expected[number] += new
        else:
            self.pool.cancel(made)

    @rule(sequence=sequences, part=st.floats(0, 1))
    def truncate(self, sequence: int, part: float) -> None:
        length = int(part * len(self.expected[sequence]))
        self.pool.truncate(sequence, length)
        del self.expected[sequence][length:]

    @rule(sequence=consumes(sequences))
    def close(self, sequence: int) -> None:
        self.pool.close(sequence)
        del self.expected[sequence]

    @rule(most=st.none() | st.integers(0, 3))
    def evict(self, most: int | None) -> None:
        kept = self.pool.stats().kept
        assert self.pool.evict(most) == (kept if most is None else min(kept, most))

    @invariant()
    def each_reads_its_own(self) -> None:
        used = set()
        for number, tokens in self.expected.items():
            table = self.pool.table(number)
            used |= set(table)
            assert self.pool.length(number) == len(tokens)
            assert len(table) == -(-len(tokens) // SIZE)
            assert [token for page in table for token in self.pages[page]][: len(tokens)] == tokens
        said = self.pool.stats()
        assert said.free + said.kept + said.used == BLOCKS
        assert (said.used, said.sequences) == (len(used), len(self.expected))


TestSequences = Sequences.TestCase
TestSequences.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_prompts_that_begin_alike_share_full_pages() -> None:
    pool = BlockPool(8, 4)
    first, shared = pool.open(range(10))
    assert shared == 0
    pool.commit(pool.extend([Request(first, 10, tuple(range(10)))]))
    _, shared = pool.open([*range(9), 77])
    assert shared == 8
    assert pool.open(range(10), salt=b"another")[1] == 0
    assert pool.open(range(8))[1] == 4  # the last token is computed, and so its page written
    said = pool.stats()
    assert (said.used, said.hits, said.misses) == (3, 3, 4)


def test_pages_of_closed_sequences_are_kept_and_given_up_oldest_first() -> None:
    pool = BlockPool(4, 2)
    for prompt in ((1, 2, 3), (4, 5, 6)):
        number, _ = pool.open(prompt)
        pool.commit(pool.extend([Request(number, 3, prompt)]))
        pool.close(number)
    assert pool.stats()[:4] == (4, 2, 2, 0)
    again, shared = pool.open((1, 2, 9))  # takes its page up again
    assert shared == 2
    pool.commit(pool.extend([Request(again, 4, (9, 9, 9, 9))]))
    assert pool.stats().evictions == 0
    pool.commit(pool.extend([Request(again, 1, (9,))]))
    assert (pool.stats().evictions, pool.open((4, 5, 6))[1]) == (1, 0)


def test_a_fork_copies_the_last_page_when_it_is_written_to() -> None:
    pool = BlockPool(4, 4)
    parent, _ = pool.open()
    pool.commit(pool.extend([Request(parent, 6)]))
    child = pool.fork(parent)
    made = pool.extend([Request(child, 1)])
    ((source, target),) = made.copies
    assert (source, pool.table(child)) == (pool.table(parent)[1], [pool.table(parent)[0], target])
    pool.commit(made)
    assert not pool.extend([Request(parent, 1)]).copies  # it is alone with its page now
    assert pool.stats().copies == 1


def test_of_those_who_share_a_page_and_write_to_it_together_one_keeps_it() -> None:
    pool = BlockPool(3, 4)
    parent, _ = pool.open()
    pool.commit(pool.extend([Request(parent, 2)]))
    children = [pool.fork(parent) for _ in range(2)]
    made = pool.extend([Request(number, 1) for number in (parent, *children)])
    assert len(made.copies) == 2
    pool.commit(made)
    assert {tuple(pool.table(number)) for number in (parent, *children)} == {(0,), (1,), (2,)}


def test_what_is_no_request_is_refused() -> None:
    pool = BlockPool(4, 4)
    one, _ = pool.open()
    for requests, says in (
        ([Request(one, 1), Request(one, 1)], "one is named twice"),
        ([Request(one, 2, (1,))], "count is 2"),
        ([Request(99, 1)], "sequence 99 is not open"),
    ):
        with pytest.raises(ShapeError, match=says):
            pool.extend(requests)
    with pytest.raises(ShapeError, match="has 0 tokens"):
        pool.truncate(one, 1)
