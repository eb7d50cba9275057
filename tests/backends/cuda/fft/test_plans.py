"""Plans: copies only where cuFFT needs them, one shared workspace, and failures."""

from typing import Any

import numpy as np
import pytest
from host_cufft import WORK, HostCufft
from host_driver import HostDriver

from callboard.backends.cuda.fft.advanced import advanced
from callboard.backends.cuda.fft.library import CudaFft
from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable, LibraryError, OutOfMemory, ShapeError
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.fft import Fft, FftPlanMany, FftWithCallback, Irfft, IrfftOverwrite, Rfft
from callboard.testing.session import LibrarySession


def array(name: str, *shape: int, steps: tuple[int, ...] | None = None) -> Any:
    return Placeholder(layout_of(DTYPES[name], shape, steps))


@pytest.mark.parametrize(
    "op, copies",
    [
        (Fft(x=array("c64", 5, 8)), ""),
        (Fft(x=array("c64", 5, 8), axes=(0,)), ""),
        (Fft(x=array("c64", 5, 8), axes=(0, 1)), ""),
        (Fft(x=array("c64", 5, 8), axes=(1, 0)), ""),
        (Fft(x=array("c64", 4, 5, 8, 3), axes=(1, 2)), "src out"),  # batches on both sides of the transformed axes
        (Fft(x=array("c64", 4, 5, 1, 3), axes=(0, 1)), ""),
        (Fft(x=array("c64", 8, 4, 5, steps=(1, 40, 8)), axes=(0,)), ""),  # other steps in the new, dense output
        (Fft(x=array("c64", 4, 8, steps=(8, -1))), "src"),
        (Fft(x=array("c64", 4, 8, steps=(0, 1))), "src"),
        (Fft(x=array("c64", 4, 8, steps=(20, 2))), ""),
        (Fft(x=array("c64", 4, 8, 6, steps=(96, 12, 2)), axes=(1, 2)), ""),
        (Fft(x=array("c64", 4, 8, 6, steps=(97, 13, 2)), axes=(1, 2)), "src"),  # 13 is not a multiple of 2
        (Fft(x=array("c64", 5, 8), aligned=False), "src out"),
        (Rfft(x=array("f32", 6, 8), axes=(0, 1)), ""),
        (Rfft(x=array("f32", 6, 8), axes=(1, 0)), "src out"),  # the halved axis is the slow one
        (Rfft(x=array("f16", 6, 8, steps=(16, 2))), "src"),
        (Irfft(x=array("c64", 6, 5)), ""),
        (Irfft(x=array("c64", 6, 5), axes=(0, 1)), "src"),  # cuFFT would overwrite it
        (Irfft(x=array("c64", 1, 5), axes=(0, 1)), ""),
        (IrfftOverwrite(x=array("c64", 6, 5), axes=(0, 1)), ""),
        (IrfftOverwrite(x=array("c64", 6, 5), out=array("f32", 6, 8, steps=(10, 1)), axes=(0, 1)), "out"),  # gaps
        (Irfft(x=array("c64", 6, 5), out=array("f32", 6, 8, steps=(10, 1)), axes=(0, 1)), "src out"),
        (Irfft(x=array("c64", 6, 5), out=array("f32", 6, 8, steps=(10, 1))), "out"),
        (Irfft(x=array("c64", 6, 5), out=array("f32", 6, 8, steps=(9, 1))), ""),
        (Irfft(x=array("c64", 6, 4), out=array("f32", 6, 7, steps=(1, 6)), n=7, axes=(0, 1)), "src out"),
    ],
)
def test_what_is_copied(op: Any, copies: str) -> None:
    where = advanced(op.transform(), isinstance(op, IrfftOverwrite))
    assert [name for name in ("src", "out") if getattr(where, f"{name}_copy") is not None] == copies.split()


def test_one_workspace_for_all_plans(session: LibrarySession, cufft: HostCufft, driver: HostDriver) -> None:
    x = session.put(np.ones(16, np.complex64))
    session.submit(Fft(x=x))
    session.submit(Fft(x=session.put(np.ones(32, np.complex64))))
    assert cufft.areas[1] == cufft.areas[2]
    n = 1024  # a copy of its input does not fit any more
    spectrum = session.put(np.ones((n, n // 2 + 1), np.complex64))
    session.submit(Irfft(x=spectrum, axes=(0, 1)))
    assert driver.on_device(cufft.areas[3], WORK + spectrum.nbytes)
    got = session.get(session.submit(Fft(x=x)))  # the first plan, where it was
    assert cufft.areas[1] == cufft.areas[2] != cufft.areas[3]
    np.testing.assert_allclose(got, np.fft.fft(np.ones(16)))


def test_a_workspace_stays_while_plans_work_in_it(
    session: LibrarySession, cufft: HostCufft, driver: HostDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A larger one may be made while ops of the library are launched on another thread: they have theirs."""
    monkeypatch.setattr(CudaFft, "max_plans", 2)
    for n in (16, 1024, 2048):
        assert all(driver.on_device(area) for area in cufft.areas.values())
        session.submit(Irfft(x=session.put(np.ones((n, n // 2 + 1), np.complex64)), axes=(0, 1)))
    assert [driver.on_device(cufft.areas[plan]) for plan in (1, 2, 3)] == [False, True, True]
    session.close()
    assert not any(driver.on_device(area) for area in cufft.areas.values())


def test_no_room_leaves_the_workspace_as_it_is(session: LibrarySession, cufft: HostCufft, driver: HostDriver) -> None:
    x = session.put(np.ones(16, np.complex64))
    session.submit(Fft(x=x))
    spectrum, out = session.put(np.ones((1024, 513), np.complex64)), session.empty((1024, 1024), "f32")
    driver.statuses["mem_alloc"] = 2
    with pytest.raises(OutOfMemory):
        session.submit(Irfft(x=spectrum, out=out, axes=(0, 1)))
    assert list(cufft.plans) == [1]
    driver.statuses.clear()
    np.testing.assert_allclose(session.get(session.submit(Fft(x=x))), np.fft.fft(np.ones(16)))


def test_failures_name_the_call(session: LibrarySession, cufft: HostCufft) -> None:
    x, out = session.put(np.ones(16, np.complex64)), session.empty(16, "c64")
    cufft.fails["xt_make_plan_many"] = 8
    with pytest.raises(LibraryError, match=r"cufftXtMakePlanMany \(\[16\], batch 1\)") as caught:
        session.submit(Fft(x=x, out=out))
    assert (caught.value.lib, caught.value.code) == ("cufft", 8)
    assert not cufft.plans
    cufft.fails = {"xt_make_plan_many": 2}
    with pytest.raises(OutOfMemory):
        session.submit(Fft(x=x, out=out))
    cufft.fails = {"xt_exec": 6}
    with pytest.raises(LibraryError, match="cufftXtExec"):
        session.submit(Fft(x=x, out=out))


def test_without_the_library(session: LibrarySession, cufft: HostCufft) -> None:
    cufft.fails["get_version"] = 1
    with pytest.raises(BackendUnavailable, match=r"libcufft.*callboard\[cuda13\]"):
        session.submit(Fft(x=session.put(np.ones(16, np.complex64))))


def test_an_address_that_the_message_could_not_know(session: LibrarySession, cufft: HostCufft) -> None:
    x, out = session.put(np.ones(18, np.float32)), session.empty(9, "c64")
    session.submit(Rfft(x=x[:16], out=out))
    library: Any = session._library("fft")
    plan = next(p.state for head, p in session._plans.items() if b"rfft" in head)
    with pytest.raises(ShapeError, match=r"x begins at an address that is not a multiple of 8 bytes.*dev.copy"):
        plan(library.stream, x.address + 4, out.address)


def test_closing_gives_everything_back(session: LibrarySession, cufft: HostCufft) -> None:
    session.submit(Fft(x=session.put(np.ones(16, np.complex64))))
    session.close()
    assert not cufft.plans


def test_warm_up_makes_a_plan(session: LibrarySession, cufft: HostCufft) -> None:
    session._library("fft").warm_up()
    assert not cufft.plans


def test_numbers_of_the_layout(session: LibrarySession, cufft: HostCufft) -> None:
    """The message's numbers are cuFFT's."""
    x, out = session.put(np.zeros(3 * 12 * 16, np.float32)), session.put(np.zeros(3 * 130, np.complex64))
    op = FftPlanMany(
        x=x,
        out=out,
        kind="R2C",
        dims=(10, 14),
        batch=3,
        in_embed=(12, 16),
        out_embed=(10, 12),
        out_dist=130,
    )
    session.submit(op)
    made = next(m for m in cufft.plans.values() if m is not None)
    assert made.n == [10, 14]
    assert made.batch == 3
    assert made.sides == ((0, [10, 16], 1, 192), (4, [10, 12], 1, 130))


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("norm", ["backward", "ortho"])
@pytest.mark.parametrize("load, store", [("l", None), (None, "s"), ("l", "s")])
@pytest.mark.parametrize("kind", ["C2C", "R2C", "C2R"])
def test_functions_before_and_after(
    session: LibrarySession,
    driver: HostDriver,
    cufft: HostCufft,
    kind: Any,
    load: str | None,
    store: str | None,
    norm: Any,
    links: bool,
) -> None:
    """The stand-ins' functions double; copies and the plan's own lie beside each other in one workspace."""
    cufft.fails = {} if links else {"xt_set_jit_callback": 5}
    x = np.random.default_rng(1).standard_normal((6, 9)).astype(np.float64)
    given = x if kind == "R2C" else x.astype(np.complex128)
    at_x, weights = session.put(given), session.put(np.ones(3))
    op = FftWithCallback(x=at_x, kind=kind, load=load, store=store, load_data=weights, axes=(1, 0), norm=norm)
    got = session.get(session.submit(op))
    name = {"C2C": "fftn", "R2C": "rfftn", "C2R": "irfftn"}[kind]
    want = getattr(np.fft, name)(given, axes=(1, 0), norm=norm) * 2 ** (bool(load) + bool(store))
    np.testing.assert_allclose(got, want, atol=1e-12)
    np.testing.assert_array_equal(session.get(at_x), given)
    linked = links and kind == "C2C" and bool(load) and (bool(store) or norm == "ortho")
    assert bool(cufft.linked) == linked, "the others need copies, or save one pass only"
    assert driver.data == [weights.address] * bool(load) + [0] * bool(store and not linked)
    session.close()
    assert not cufft.plans


def test_what_is_linked(session: LibrarySession, cufft: HostCufft, driver: HostDriver) -> None:
    """In C++, whose linkage cuFFT expects; with the norm in the store, and data that may change."""
    x, out, weights = session.put(np.ones(8, np.float32)), session.empty(5, "c64"), session.put(np.ones(3))
    session.submit(FftWithCallback(x=x, out=out, kind="R2C", load="HERE", norm="ortho", load_data=weights))
    ((_, load, kind, cell), (name, store, other, none)) = cufft.linked[max(cufft.linked)]
    assert (name, kind, other, none) == ("callboard_store", 2, 4, cell + 8)
    assert "typedef float real" in load
    assert "#line 1\nHERE\n" in load
    assert "float callboard_load(void *x, unsigned long long i, void *data, void *)" in load
    assert "load((const real *)x, i, *(const void **)data)" in load
    assert 'extern "C"' not in load + store
    assert f"value.x *= (real){1 / 8**0.5!r}, value.y *= (real){1 / 8**0.5!r};" in store
    assert "store((cplx *)out, i, value, nullptr)" in store
    again = session.put(np.ones(3))
    session.submit(FftWithCallback(x=x, out=out, kind="R2C", load="HERE", norm="ortho", load_data=again))
    assert driver.data == [weights.address, again.address]
    assert len(cufft.linked) == 1


def test_no_room_for_a_linked_plan(session: LibrarySession, cufft: HostCufft, driver: HostDriver) -> None:
    x, weights = session.put(np.ones(16, np.complex64)), session.put(np.ones(3))
    session.submit(Fft(x=x))  # the handle is there
    blocks = len(driver.blocks)
    cufft.fails = {"xt_make_plan_many": 2}
    with pytest.raises(OutOfMemory):
        session.submit(FftWithCallback(x=x, out=session.empty(16, "c64"), load="l", load_data=weights))
    assert len(cufft.plans) == 1
    assert len(driver.blocks) <= blocks + 1, "the cells are given back"


def test_a_source_says_what_it_computes_in(
    session: LibrarySession, cufft: HostCufft, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    cufft.fails = {"xt_set_jit_callback": 5}
    library: Any = session._library("fft")
    compile_ = library.device.kernels.compile
    monkeypatch.setattr(library.device.kernels, "compile", lambda *a: texts.append(a[1].decode()) or compile_(*a))
    session.submit(FftWithCallback(x=session.put(np.ones(8, np.float32)), kind="R2C", load="HERE", store="THERE"))
    load, store = texts
    assert "typedef float real" in load
    assert "#line 1\nHERE\n" in load
    assert "const real *x = (const real *)a.x" in load
    assert "out[i] = load(x, i, a.data);" in load
    assert "const cplx *x = (const cplx *)a.x" in store
    assert "store(out, i, x[i], a.data);" in store


@pytest.mark.parametrize(
    "numbers, copies",
    [
        ({}, ""),
        ({"in_dist": 8, "out_dist": 5}, ""),
        ({"in_dist": 9}, "src"),  # cuFFT steps over no real halves
        ({"in_stride": 2}, "src"),
        ({"in_dist": 4}, "src"),  # windows that overlap
        ({"in_dist": 0}, "src"),
        ({"out_stride": 2, "out_dist": 11}, ""),
    ],
)
def test_which_halves_are_copied(numbers: Any, copies: str) -> None:
    op = FftPlanMany(x=array("f16", 99), out=array("f16", 99, 2), kind="R2C", dims=(8,), batch=3, **numbers)
    where = advanced(op.transform(), False)
    assert [name for name in ("src", "out") if getattr(where, f"{name}_copy") is not None] == copies.split()


def test_windows_of_real_halves_whose_gaps_others_fill(session: LibrarySession, cufft: HostCufft) -> None:
    """Rows at a step of 3 with a transform at each place: as many elements as places, and yet no array without gaps."""
    x = np.random.default_rng(2).standard_normal(24).astype(np.float16)
    at_x, out = session.put(x), session.put(np.zeros((8 * 4, 2), np.float16))
    numbers: Any = {"in_embed": (2, 3), "in_dist": 1}
    got = session.get(session.submit(FftPlanMany(x=at_x, out=out, kind="R2C", dims=(2, 2), batch=8, **numbers)))
    windows = np.stack([[x[b : b + 2], x[b + 3 : b + 5]] for b in range(8)]).astype(np.float32)
    want = np.fft.rfft2(windows)
    np.testing.assert_allclose(got[:, 0] + 1j * got[:, 1].astype(np.float32), want.reshape(-1), atol=0.02)


@pytest.mark.parametrize("kind, types", [("C2C", (6, 6)), ("R2C", (2, 6)), ("C2R", (6, 2))])
def test_numbers_of_halves(session: LibrarySession, cufft: HostCufft, kind: Any, types: tuple[int, int]) -> None:
    """In elements, of which a pair is one."""
    x = session.put(np.zeros((200, 2) if types[0] == 6 else 200, np.float16))
    out = session.put(np.zeros((200, 2) if types[1] == 6 else 200, np.float16))
    ends: dict[str, Any] = {"in": types[0], "out": types[1]}
    numbers: Any = {f"{end}_stride": 3 for end, t in ends.items() if t == 6}
    numbers |= {f"{end}_dist": 50 for end, t in ends.items() if t == 6}
    session.submit(FftPlanMany(x=x, out=out, kind=kind, dims=(16,), batch=3, **numbers))
    made = next(m for m in cufft.plans.values() if m is not None)
    assert tuple(side[0] for side in made.sides) == types
    assert [side[2:] for side in made.sides] == [(3, 50) if t == 6 else (1, 16) for t in types]
