"""``TorchTensor``: contractions by einsum; ``@`` and ``xp.tensordot`` are such."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from callboard.backends.torch.blas.forms import lincomb, wide
from callboard.backends.torch.library import Plan, TorchLibrary
from callboard.backends.torch.vendor import Tensor, torch
from callboard.core.library import plans
from callboard.kernel import tensor

__all__ = ["TorchTensor"]

_ELSEWHERE = "expressions (dev.elementwise) and copies have it"


class TorchTensor(TorchLibrary):
    """Serves the contractions of :mod:`callboard.kernel.tensor`."""

    name = "tensor"
    refused: ClassVar[Mapping[Any, str]] = dict.fromkeys(
        (tensor.ElementwiseBinary, tensor.ElementwiseTrinary, tensor.Permutation, tensor.Reduction), _ELSEWHERE
    )

    @plans(tensor.Contract)
    def contract(self, op: tensor.Contract) -> Plan:
        labels: dict[Any, int] = {}
        modes = [[labels.setdefault(mode, len(labels)) for mode in row] for row in (op.modes_a, op.modes_b)]
        out = [labels[mode] for mode in op.modes_out]

        def work(a: Tensor, b: Tensor, c: Tensor | None, alpha: Any, beta: Any) -> Tensor:
            a, b, c = _taken(a, op.op_a), _taken(b, op.op_b), None if c is None else _taken(c, op.op_c)
            if not a.is_floating_point() and not a.is_complex():
                alpha, beta = int(alpha), int(beta)
            return lincomb(alpha, lambda: torch.einsum(a, modes[0], b, modes[1], out), beta, c)

        return self.planned(op, work)

    @plans(tensor.Einsum)
    def einsum(self, op: tensor.Einsum) -> Plan:
        equation = op.equation.replace(" ", "")

        def work(operands: Sequence[Tensor]) -> Tensor:
            return torch.einsum(equation, *(_taken(x, "identity") for x in operands))

        return self.planned(op, work)


def _taken(x: Tensor, operation: str) -> Tensor:
    if not x.is_floating_point() and not x.is_complex():
        return x.to(torch.int64)  # PyTorch's sums of integers are, and its products take one dtype
    x = wide(x)
    return x.conj() if operation == "conj" and x.is_complex() else x
