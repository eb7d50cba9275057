import inspect
from typing import Any

from callboard.core.op import Op
from callboard.kernel.face import Face, Submit
from callboard.kernel.memory import Empty


class Recorder:
    """A device's ``submit`` that keeps what it is given."""

    def __init__(self) -> None:
        self.ops: list[Op[Any, Any]] = []

    def __call__(self, op: Op[Any, Any]) -> Any:
        self.ops.append(op)
        return op


class EmptyFace(Face):
    __slots__ = ()

    def empty(self, *shape: int) -> Any:
        return self._submit(Empty(shape=shape, dtype="f32"))


def test_a_face_hands_its_messages_to_submit_and_gives_back_what_that_answers() -> None:
    submit = Recorder()
    answer = EmptyFace(submit).empty(2, 3)
    assert submit.ops == [Empty(shape=(2, 3), dtype="f32")]
    assert answer is submit.ops[0]


def test_a_face_holds_nothing_but_submit() -> None:
    assert Face.__slots__ == ("_submit",)
    assert not hasattr(EmptyFace(Recorder()), "__dict__")
    assert list(inspect.signature(Submit.__call__).parameters) == ["self", "op"]
