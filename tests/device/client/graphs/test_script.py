"""Layout of a recording: shared memory, dependencies, reads and writes of a replay."""

from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import as_dtype
from callboard.core.layout import Layout, layout_of
from callboard.core.operand import Role
from callboard.device.client.graphs.drawing import dot
from callboard.device.client.graphs.script import ArrayUse, OperandPlace, RecordedOp, nodes_of, packed, script_operands


def row(n: int) -> Layout:
    return layout_of(as_dtype("u8"), (n,))


def op(*uses: ArrayUse) -> RecordedOp:
    return RecordedOp("test.op", b"", [], [u for u in uses if u.role is not Role.OUT], list(uses[-1:]), [], "here:1")


USES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True), max_size=12)


@given(uses=USES, sizes=st.lists(st.integers(1, 4000), min_size=8, max_size=8))
def test_buffers_in_use_at_the_same_time_do_not_overlap(uses: list[list[int]], sizes: list[int]) -> None:
    ops = [op(*(ArrayUse(b, 0, row(sizes[b]), Role.INOUT, "x") for b in buffers)) for buffers in uses]
    offsets, total = packed(ops, dict(enumerate(sizes)))
    spans = {b: [at for at, buffers in enumerate(uses) if b in buffers] for b in range(8)}
    for a in range(8):
        assert offsets[a] % 256 == 0
        if spans[a]:
            assert offsets[a] + sizes[a] <= total
        for b in range(a):
            if spans[a] and spans[b] and spans[a][0] <= spans[b][-1] and spans[b][0] <= spans[a][-1]:
                apart = offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]
                assert apart, (a, b)


def test_a_chain_needs_two_buffers() -> None:
    """Each op reads the result before and writes its own."""
    ops = [
        op(ArrayUse(at, 0, row(1000), Role.IN, "x"), ArrayUse(at + 1, 0, row(1000), Role.OUT, "y")) for at in range(20)
    ]
    assert packed(ops, dict.fromkeys(range(1, 21), 1000))[1] == 2024


def use(buffer: int, low: int, high: int, role: Role) -> ArrayUse:
    return ArrayUse(buffer, low, row(high - low), role, "x")


def test_ops_wait_for_those_whose_bytes_they_need() -> None:
    nodes = nodes_of(
        [
            op(use(1, 0, 8, Role.OUT)),
            op(use(1, 8, 16, Role.OUT)),
            op(use(1, 0, 8, Role.IN), use(2, 0, 8, Role.OUT)),
            op(use(1, 4, 12, Role.IN), use(3, 0, 8, Role.OUT)),
            op(use(2, 0, 8, Role.IN), use(1, 0, 4, Role.OUT)),
        ]
    )
    assert [node.after for node in nodes] == [(), (), (0,), (0, 1), (2,)]
    text = dot(nodes, 'a "name"')
    assert text.startswith('digraph "a \\"name\\"" {')
    assert text.count("->") - text.count("\\n->") == 4


def test_what_a_replay_reads_is_what_no_op_has_written_before() -> None:
    places = {buffer: OperandPlace(buffer, 0) for buffer in range(4)}
    ops = [
        op(use(0, 0, 8, Role.IN), use(1, 0, 8, Role.OUT)),  # 1 is written as a whole
        op(use(1, 0, 8, Role.INOUT)),
        op(use(2, 0, 4, Role.OUT)),  # and 2 in part
        op(use(2, 4, 8, Role.IN), use(3, 8, 16, Role.OUT)),
    ]
    operands = script_operands(ops, places, list("abcd"), [32])
    assert [(o.reads, o.writes, o.whole, o.low, o.high) for o in operands] == [
        (True, False, -1, 0, 8),
        (False, True, 8, 0, 8),
        (True, True, 4, 0, 8),
        (False, True, 32, 8, 16),
    ]
