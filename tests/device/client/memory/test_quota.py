"""The quota of a pool: caps hold, requests keep their order, nothing is lost; against a model that is a list."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.device.client.memory.quota import Quota


class Machine(RuleBasedStateMachine):
    """Holders ask, give up, give back; what each was granted is kept here."""

    @initialize(buffers=st.integers(1, 4), nbytes=st.one_of(st.none(), st.integers(10, 40)))
    def begin(self, buffers: int, nbytes: int | None) -> None:
        self.quota = Quota(buffers, nbytes)
        self.line: list[tuple[int, int]] = []
        self.held: list[tuple[int, int]] = []
        self.number = 0

    def settle(self) -> None:
        for granted in self.quota.grant():
            assert granted == self.line.pop(0), "in the order of asking"
            self.held.append(granted)  # type: ignore[arg-type]

    @rule(nbytes=st.integers(0, 10))
    def ask(self, nbytes: int) -> None:
        self.number += 1
        (self.held if self.quota.ask(self.number, nbytes) else self.line).append((self.number, nbytes))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give(self, data: Any) -> None:
        who, nbytes = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        assert not self.quota.give_up(who), "it does not wait"
        self.quota.give(nbytes)
        self.settle()

    @precondition(lambda self: self.held)
    @rule()
    def again(self) -> None:
        """The last one finds no memory: it is first in line."""
        entry = self.held.pop()
        self.quota.again(*entry)
        self.line.insert(0, entry)

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        who, _ = self.line.pop(data.draw(st.integers(0, len(self.line) - 1)))
        assert self.quota.give_up(who)
        self.settle()

    @invariant()
    def counts(self) -> None:
        quota = self.quota
        assert quota.out == len(self.held) <= quota.max_buffers
        assert quota.bytes_out == sum(nbytes for _, nbytes in self.held) <= quota.most_bytes
        assert quota.max_bytes is None or quota.most_bytes <= quota.max_bytes
        assert list(quota.waiting.items()) == self.line

    def teardown(self) -> None:
        if not hasattr(self, "quota"):
            return
        self.settle()
        while self.held:
            self.quota.give(self.held.pop()[1])
            self.settle()
        assert not self.line, "who waits is granted when all else is given back"
        assert (self.quota.out, self.quota.bytes_out) == (0, 0)


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30)


def test_more_cannot_be_given_back_than_is_out() -> None:
    quota = Quota(2)
    quota.ask("a", 5)
    with pytest.raises(ValueError, match="6 bytes were returned, 5 in 1 buffers are out"):
        quota.give(6)


def test_what_never_fits_is_known_before() -> None:
    assert not Quota(1, 10).fits(11)
    assert Quota(1, 10).fits(10)
    assert Quota(1).fits(1 << 60)
