"""The conformance suite of sparse solves on the stand-ins; when a system is analysed, factored, substituted."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from host_cudss import HostCudss
from host_driver import HostDriver

from callboard.backends.cuda.solver import cudss as module
from callboard.backends.cuda.solver import system
from callboard.core.backend import Memory
from callboard.core.errors import BackendUnavailable, NumericalError, OutOfMemory
from callboard.kernel.solver import SparseCholesky, SparseLu
from callboard.kernel.solver.transversal import transversal
from callboard.testing.session import LibrarySession

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_solver_sparse import *  # noqa: F403 - its tests, with this folder's session
from test_solver_sparse import GENERAL, OPS, execute, put_sparse, with_zeros

for ops in (OPS, GENERAL):
    ops[:] = [op for op in ops if op.id != "SparseQr"]  # of cuSOLVER there is no sparse stand-in
ANALYSIS, FACTORIZATION, SOLVE = module.ANALYSIS, module.FACTORIZATION, module.SOLVE
A = scipy.sparse.csr_array(np.array([[4.0, 1, 0], [1, 3, 0], [0, 0, 2]]))


@pytest.mark.parametrize("op", [SparseLu, SparseCholesky])
def test_what_is_done_again(session: LibrarySession, cudss: HostCudss, op: type[SparseLu]) -> None:
    def phases(a: scipy.sparse.csr_array, b: np.ndarray) -> list[int]:
        cudss.phases.clear()
        x = execute(session, op(a=put_sparse(session, a), b=session.put(b)))
        np.testing.assert_allclose(a @ session.get(x), b)
        return list(cudss.phases)

    b = np.array([1.0, 2, 3])
    other = scipy.sparse.csr_array(np.array([[4.0, 0, 1], [0, 3, 0], [1, 0, 2]]))
    assert phases(A, b) == [ANALYSIS, FACTORIZATION, SOLVE]
    assert phases(A, -b) == [SOLVE]
    assert phases(2 * A, b) == [FACTORIZATION, SOLVE]
    assert phases(2 * A, b) == [SOLVE]
    assert phases(other, b) == [ANALYSIS, FACTORIZATION, SOLVE]
    assert phases(other, np.stack([b, -b], axis=1)) == [SOLVE]
    assert phases(A.astype("f4"), b.astype("f4")) == [ANALYSIS, FACTORIZATION, SOLVE]


def test_pivots_of_whole_columns_are_the_last_resort(session: LibrarySession, cudss: HostCudss) -> None:
    swapped = A[[1, 2, 0]]
    x = execute(session, SparseLu(a=put_sparse(session, swapped), b=session.put(np.array([1.0, 2, 3]))))
    np.testing.assert_allclose(swapped @ session.get(x), [1, 2, 3])
    assert cudss.phases == 3 * [ANALYSIS, FACTORIZATION, SOLVE]
    cudss.phases.clear()
    execute(session, SparseLu(a=put_sparse(session, swapped), b=session.put(np.ones(3))))
    assert cudss.phases == [SOLVE]
    cudss.phases.clear()
    execute(session, SparseLu(a=put_sparse(session, 2 * swapped), b=session.put(np.ones(3))))
    assert cudss.phases == [ANALYSIS, FACTORIZATION, SOLVE]


def test_what_lies_in_memory_makes_no_pivot(
    session: LibrarySession, driver: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whole columns, of the memory that is given, and of the last matrix."""
    allocate = session.device.allocate

    def used(nbytes: int) -> Memory:
        memory = allocate(nbytes)
        driver.memset_8(memory.address, 0x3F, nbytes, 0)
        return memory

    monkeypatch.setattr(session.device, "allocate", used)
    singular, b = scipy.sparse.csr_array(np.array([[0.0, 1, 2], [1, 2, 1], [2, 4, 2]])), np.ones(3)
    regular = scipy.sparse.csr_array(np.array([[0.0, 1, 2], [1, 2, 1], [2, 1, 1]]))
    refused, solvable = put_sparse(session, singular), session.put(singular @ b)
    with pytest.raises(NumericalError, match="the matrix is singular: 1 pivot is 0"):
        execute(session, SparseLu(a=refused, b=solvable))
    x = execute(session, SparseLu(a=put_sparse(session, regular), b=session.put(b)))
    np.testing.assert_allclose(regular @ session.get(x), b)
    with pytest.raises(NumericalError, match="the matrix is singular: 1 pivot is 0"):
        execute(session, SparseLu(a=refused, b=solvable))


def test_where_elements_are_is_read_back_if_it_must_be(
    session: LibrarySession, driver: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With zeros on the diagonal, when the pattern is new or there are zeros in it, and from what is known of it."""
    starts: list[list[int] | None] = []

    def found(tag: str, offsets: Any, indices: Any, elements: Any, start: Any) -> Any:
        starts.append(None if start is None else list(start))
        return transversal(tag, offsets, indices, elements, start)

    monkeypatch.setattr(system, "transversal", found)

    def asked(a: np.ndarray[Any, Any]) -> list[list[int] | None]:
        starts.clear()
        x = execute(session, SparseLu(a=put_sparse(session, with_zeros(a, where)), b=session.put(np.ones(3))))
        np.testing.assert_allclose(a @ session.get(x), np.ones(3))
        return list(starts)

    full, hollow = np.array([[9.0, 1, 0], [1, 9, 1], [0, 1, 9]]), np.array([[0.0, 9, 1], [0, 1, 9], [9, 1, 0]])
    less = hollow.copy()
    less[0, 2] = 0
    where = full
    assert asked(full) == []
    assert asked(np.diag([1.0, 2, 3])) == []  # zeros, but none on the diagonal
    where = hollow
    assert asked(hollow) == [None]
    assert asked(hollow) == []
    assert asked(2 * hollow) == []
    assert asked(less) == [[2, 1, 0]]
    assert asked(2 * less) == [[1, 2, 0]]


def test_nothing_is_kept_of_a_failure(session: LibrarySession, cudss: HostCudss) -> None:
    b = session.put(np.ones(3))
    execute(session, SparseCholesky(a=put_sparse(session, A), b=b))
    with pytest.raises(NumericalError, match="not positive definite") as failed:
        execute(session, SparseCholesky(a=put_sparse(session, -A), b=b))
    assert failed.value.info == 1
    cudss.phases.clear()
    execute(session, SparseCholesky(a=put_sparse(session, A), b=b))
    assert cudss.phases == [ANALYSIS, FACTORIZATION, SOLVE]


def test_its_memory_is_the_devices(
    session: LibrarySession, cudss: HostCudss, driver: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = put_sparse(session, A), session.put(np.ones(3))
    execute(session, SparseLu(a=a, b=b))
    (address,) = cudss.memory
    assert driver.on_device(address, 64)
    other, allocate = put_sparse(session, scipy.sparse.csr_array(A.toarray()[::-1, ::-1])), session.device.allocate

    def refusing(nbytes: int) -> Memory:
        if nbytes == 64:  # what the stand-in asks for
            raise OutOfMemory("no room for 64")
        return allocate(nbytes)

    with monkeypatch.context() as patch:
        patch.setattr(session.device, "allocate", refusing)
        with pytest.raises(OutOfMemory, match="no room for 64"):
            execute(session, SparseLu(a=other, b=b))
    execute(session, SparseLu(a=other, b=b))


def test_all_is_given_back(cudss: HostCudss, driver: HostDriver, session: LibrarySession) -> None:
    execute(session, SparseLu(a=put_sparse(session, A), b=session.put(np.ones(3))))
    assert cudss.alive
    session.close()
    assert not cudss.alive
    assert not cudss.memory


def test_where_it_is_not_installed(session: LibrarySession, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise BackendUnavailable("cuDSS cannot be used: no such module; pip install it")

    monkeypatch.setattr(module, "load_cudss", missing)
    with pytest.raises(BackendUnavailable, match=r"no such module; pip install it; without it take solver\.sparse_qr"):
        execute(session, SparseLu(a=put_sparse(session, A), b=session.put(np.ones(3))))
