"""A stand-in for ``nccl.bindings.nccl``: communicators of ranks that are threads of one process, on host memory.

What a rank enqueues is done when all ranks that it concerns have enqueued theirs, as by a stream that runs at once.
"""

import itertools
import threading
from typing import Any

import numpy as np

from callboard.backends.cpu.views import array_at
from callboard.backends.cuda.collective.nccl import CODES, OPS
from callboard.core.layout import layout_of

DTYPES = {code: dtype for dtype, code in CODES.items()}


class NCCLError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"ncclResult {status}")
        self.status = status


class Clique:
    """What the ranks of one communicator share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.met = threading.Barrier(size)
        self.lock = threading.Lock()
        self.collectives: dict[int, list[tuple[Any, ...] | None]] = {}
        self.sent: dict[tuple[int, int], list[bytes]] = {}
        self.wanted: dict[tuple[int, int], list[Any]] = {}


class Comm:
    def __init__(self, clique: Clique, rank: int) -> None:
        self.clique, self.rank, self.count = clique, rank, 0
        self.aborted = False
        self.error = 0
        self.ops: dict[int, float] = {}


class HostNccl:
    """The binding.

    Attributes:
        fails: Status that the next collective fails with; 0: none.
        grouped: How deep in groups this is.
        comms: All that were made.
    """

    NCCLError = NCCLError

    def __init__(self) -> None:
        self.cliques: dict[bytes, Clique] = {}
        self.ids = itertools.count()
        self.ops = itertools.count(5)
        self.comms: list[Comm] = []
        self.fails = 0
        self.grouped = 0
        self._lock = threading.Lock()

    def get_version(self) -> int:
        return 22809

    def get_unique_id(self) -> bytes:
        return next(self.ids).to_bytes(8) * 16

    def comm_init_rank_scalable(self, size: int, rank: int, ids: int, unique_id: bytearray, config: int) -> Comm:
        assert (ids, config, len(unique_id)) == (1, 0, 128)
        with self._lock:
            clique = self.cliques.setdefault(bytes(unique_id), Clique(size))
        clique.met.wait(30.0)
        comm = Comm(clique, rank)
        self.comms.append(comm)
        return comm

    def comm_get_async_error(self, comm: Comm) -> int:
        return comm.error

    def comm_abort(self, comm: Comm) -> None:
        assert not comm.aborted, "given back twice"
        comm.aborted = True

    def group_start(self) -> None:
        self.grouped += 1

    def group_end(self) -> None:
        self.grouped -= 1

    def red_op_create_pre_mul_sum(self, address: int, code: int, residence: int, comm: Comm) -> int:
        assert residence in (0, 1)
        op = next(self.ops)
        comm.ops[op] = float(_view(address, 1, code)[0])
        return op

    def red_op_destroy(self, op: int, comm: Comm) -> None:
        del comm.ops[op]

    # -- between pairs -------------------------------------------------------------------------------------------------

    def send(self, address: int, count: int, code: int, peer: int, comm: Comm, stream: int) -> None:
        clique = comm.clique
        with clique.lock:
            pair = comm.rank, peer
            data = _view(address, count, code).tobytes()
            if clique.wanted.get(pair):
                _fill(clique.wanted[pair].pop(0), data)
            else:
                clique.sent.setdefault(pair, []).append(data)

    def recv(self, address: int, count: int, code: int, peer: int, comm: Comm, stream: int) -> None:
        clique = comm.clique
        with clique.lock:
            pair = peer, comm.rank
            target = _view(address, count, code)
            if clique.sent.get(pair):
                _fill(target, clique.sent[pair].pop(0))
            else:
                clique.wanted.setdefault(pair, []).append(target)

    # -- of all --------------------------------------------------------------------------------------------------------

    def all_reduce(self, a: int, b: int, count: int, code: int, op: int, comm: Comm, stream: int) -> None:
        self._all("all_reduce", (a, b, count, code, op), comm)

    def reduce(self, a: int, b: int, count: int, code: int, op: int, root: int, comm: Comm, stream: int) -> None:
        self._all("reduce", (a, b, count, code, op, root), comm)

    def reduce_scatter(self, a: int, b: int, count: int, code: int, op: int, comm: Comm, stream: int) -> None:
        self._all("reduce_scatter", (a, b, count, code, op), comm)

    def broadcast(self, a: int, b: int, count: int, code: int, root: int, comm: Comm, stream: int) -> None:
        self._all("broadcast", (a, b, count, code, root), comm)

    def all_gather(self, a: int, b: int, count: int, code: int, comm: Comm, stream: int) -> None:
        self._all("all_gather", (a, b, count, code), comm)

    def _all(self, kind: str, arguments: tuple[Any, ...], comm: Comm) -> None:
        if self.fails:
            status, self.fails = self.fails, 0
            raise NCCLError(status)
        if kind in ("all_reduce", "reduce", "reduce_scatter"):
            arguments = (*arguments, comm.ops.get(arguments[4]))
        clique = comm.clique
        with clique.lock:
            entry = clique.collectives.setdefault(comm.count, [None] * clique.size)
            comm.count += 1
            entry[comm.rank] = (kind, *arguments)
            if None not in entry:
                _compute([one for one in entry if one is not None])


def _compute(parts: list[tuple[Any, ...]]) -> None:
    kind, size = parts[0][0], len(parts)
    assert len({(p[0], *p[3:5]) for p in parts}) == 1, "the ranks do not run the same"
    count, code = parts[0][3:5]
    if kind in ("all_reduce", "reduce", "reduce_scatter"):
        n = count * size if kind == "reduce_scatter" else count
        total = _reduced([(_view(p[1], n, code), p[5], p[-1]) for p in parts], size)
        for rank, part in enumerate(parts):
            if kind == "reduce_scatter":
                _view(part[2], count, code)[:] = total[rank * count : (rank + 1) * count]
            elif kind == "all_reduce" or part[6] == rank:
                _view(part[2], count, code)[:] = total
    elif kind == "broadcast":
        data = _view(parts[parts[0][5]][1], count, code).copy()
        for part in parts:
            _view(part[2], count, code)[:] = data
    else:
        data = np.concatenate([_view(p[1], count, code) for p in parts])
        for part in parts:
            _view(part[2], count * size, code)[:] = data


def _reduced(given: list[tuple[Any, int, float | None]], size: int) -> Any:
    op = given[0][1]
    dtype = given[0][0].dtype
    wide = np.int64 if dtype.kind in "iu" else np.float64
    rows = np.stack([x.astype(wide) * (1 if factor is None else wide(factor)) for x, _, factor in given])
    if op == OPS["avg"]:
        total = rows.sum(0) // size if wide is np.int64 else rows.sum(0) / size
    else:
        total = {1: np.prod, 2: np.max, 3: np.min}.get(op, np.sum)(rows, axis=0)
    return total.astype(dtype)


def _view(address: int, count: int, code: int) -> Any:
    return array_at(address, layout_of(DTYPES[code], (count,)))


def _fill(target: Any, data: bytes) -> None:
    target[:] = np.frombuffer(data, target.dtype)
