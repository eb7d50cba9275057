"""Functions of ``dev.scipy`` give what SciPy gives: one line a case, run with both."""

import operator
import re
from pathlib import Path
from typing import Any

import numpy
import pytest
import scipy
import scipy.ndimage
import scipy.signal
import scipy.special
import scipy.stats

import callboard as cb
from callboard.scipylike.missing import left_out
from callboard.scipylike.namespace import SECTIONS
from callboard.scipylike.namespace import names as names_of
from callboard.scipylike.table import TABLE

RNG = numpy.random.default_rng(0)
HOST: dict[str, Any] = {
    "x": RNG.normal(size=300),
    "g": RNG.normal(size=(3, 200)).astype("f4"),
    "c": RNG.normal(size=(150,)) + 1j * RNG.normal(size=150),
    "k": RNG.random(8),
    "p": RNG.uniform(0.01, 0.99, (4, 5)),
    "q": RNG.uniform(0.01, 0.99, (4, 5)),
    "im": RNG.random((16, 21)),
    "im4": RNG.random((9, 8)).astype("f4"),
    "vol": RNG.random((5, 6, 7)),
    "whole": RNG.integers(-9, 9, 40),
    "byte": RNG.integers(0, 200, (6, 7)).astype("u1"),
    "lab": RNG.integers(0, 4, (16, 21)),
    "e": numpy.array([-numpy.inf, -40.0, -1.0, 0.0, 1e-3, 1.0, 40.0, 800.0, numpy.inf, numpy.nan]),
}
HOST |= {  # values that few expect
    "nan": numpy.array([1.0, numpy.nan, 3.0]),
    "inf": numpy.array([1.0, numpy.inf, 3.0]),
    "inf4": numpy.array([1.0, numpy.inf, 3.0], "f4"),
    "neg": numpy.array([-1.0, 2.0, 3.0]),
    "big": numpy.array([1.7e308, 1.7e308, 1.0]),
    "pair": numpy.array([1.0, 2.0]),
    "nil": numpy.zeros(2),
    "empty": numpy.zeros(0),
    "none3": numpy.zeros((0, 3)),
    "three0": numpy.zeros((3, 0)),
    "two": numpy.array(2.0),
    "ints": numpy.array([3, 0, 2]),
    "holes": numpy.array([[1.0, numpy.nan, 5], [2, 1, 5], [3, 7, -1], [0, 4, 2]]),
    "grid": numpy.arange(12.0).reshape(4, 3) ** 2 % 7,
}
HOST["spiral"] = numpy.zeros((23, 23), "u1")
for _at in range(0, 11, 2):
    HOST["spiral"][_at, _at : 23 - _at] = HOST["spiral"][_at : 23 - _at, 22 - _at] = 1
    HOST["spiral"][22 - _at, _at : 23 - _at] = HOST["spiral"][_at + 2 : 23 - _at, _at] = 1
    HOST["spiral"][_at + 2, _at : _at + 3] = 1
COEFFICIENTS = {
    "ba": scipy.signal.butter(4, 0.2),
    "sos": scipy.signal.butter(6, [0.1, 0.4], btype="band", output="sos"),
    "fir": (scipy.signal.firwin(21, 0.3), 1.0),
    "hp": scipy.signal.cheby1(3, 1, 0.05, btype="high"),
    "w3": numpy.arange(9.0).reshape(3, 3),
    "w2": numpy.array([[1.0, 2], [3, -1]]),
}
SIGNAL = """
convolve(x, k) | convolve(x, k, "same") | convolve(x, k, "valid") | convolve(k, x, "same")
convolve(whole, whole[:5]) | convolve(im, im[:3, :4]) | convolve(c, k) | convolve(k, x, "valid")
convolve(g[0], g[1], mode="same", method="fft") | correlate(x, k) | correlate(x, k, "same")
correlate(x, k, mode="valid") | correlate(c, c[:20]) | correlate(k, x) | correlate(k, x, "same") | correlate(x, c[:9])
fftconvolve(x, k) | fftconvolve(g, g, "same", axes=1) | fftconvolve(g, g[:1], axes=-1) | fftconvolve(whole, whole)
oaconvolve(x, k) | oaconvolve(g, g[:, :9], "valid", axes=[1]) | fftconvolve(im, im, axes=0) | hilbert(x) | hilbert(g)
hilbert(g, axis=0) | hilbert(x, 128) | hilbert(x[:151]) | resample(x, 100) | resample(x, 451) | resample(x[:151], 80)
resample(x[:151], 301) | resample(g, 60, axis=1) | resample(c, 80) | resample(x, 300) | resample(c, 301)
resample(x, 99) | resample(c, 76) | resample(x, 600) | resample(c, 75) | resample(x, 2) | resample(x, 1) | detrend(x)
detrend(g) | detrend(g, axis=0) | detrend(x, type="constant") | detrend(whole) | lfilter(*ba, x) | lfilter(*ba, g)
lfilter(*ba, im, axis=0) | lfilter(*fir, x) | lfilter(*hp, x) | lfilter([1.0], [1.0, -0.9], x)
lfilter([2.0], [4.0], x) | lfilter(*ba, x, zi=k[:4]) | lfilter(*ba, x[:10], zi=k[:4]) | lfilter(*ba, c)
lfilter(*ba, x[:128], zi=k[:4]) | lfilter(*ba, x[:64], zi=k[:4]) | lfilter(*ba, whole) | lfilter(*ba, vol, axis=1)
lfilter([1.0, 0.5], [1.0], x) | lfilter([1j, 0.5], [1.0, 0.3j], x) | sosfilt(sos, x) | sosfilt(sos, g)
sosfilt(sos, im, axis=0) | sosfilt(sos, x, zi=numpy.ones((6, 2))) | stft(x) | stft(x, nperseg=64)
stft(g, 8e3, "hamming", 50, 40) | stft(x, nperseg=64, boundary=None, padded=False) | stft(x, nperseg=33, nfft=64)
stft(c, nperseg=64, return_onesided=False) | stft(im, nperseg=8, axis=0)
stft(x, nperseg=64, scaling="psd", detrend="linear") | stft(vol, nperseg=4, axis=1) | stft(vol, nperseg=4, axis=-2)
istft(stft(x, nperseg=64)[2], nperseg=64) | istft(stft(g, nperseg=50, noverlap=40)[2], nperseg=50, noverlap=40)[1]
istft(stft(c, nperseg=64, return_onesided=False)[2], input_onesided=False) | istft(stft(x, nperseg=64)[2])
istft(stft(x, nperseg=64, boundary=None)[2], boundary=False, window="hann") | spectrogram(x)
spectrogram(x, 100.0, nperseg=64) | spectrogram(g, nperseg=50, noverlap=10, scaling="spectrum")
spectrogram(x, nperseg=64, mode="magnitude") | spectrogram(x, nperseg=63, mode="complex")
spectrogram(im, nperseg=9, axis=0) | welch(x) | welch(x, 10.0, nperseg=64) | welch(g, nperseg=50, detrend=False)
welch(c, nperseg=64) | welch(im, axis=0) | welch(x, 1.0, "hamming", 65, 32, 128, "linear", True, "spectrum")
periodogram(x) | periodogram(g, 4.0, "hann") | csd(x, x[::-1], nperseg=64) | coherence(x, x[::-1], nperseg=32)
get_window("hann", 16) | get_window(("kaiser", 4.0), 9) | stft(empty) | stft(none3) | spectrogram(none3) | welch(empty)
welch(three0) | periodogram(empty) | csd(none3, none3) | csd(x, x, nperseg=64)
"""
NDIMAGE = """
gaussian_filter(im, 1.0) | gaussian_filter(im, (2, 0.5), mode="nearest") | gaussian_filter(im4, 1.5)
gaussian_filter(im, 0) | gaussian_filter(im, 1, order=1) | gaussian_filter(im, 2, order=(0, 2), mode="mirror")
gaussian_filter(vol, 0.7, mode="wrap") | gaussian_filter(im, 1, mode="constant", cval=2.0)
gaussian_filter(im, 1.0, radius=2) | gaussian_filter(vol, 1, axes=(0, 2)) | gaussian_filter(im, 1, order=3)
gaussian_filter1d(im, 1.2) | gaussian_filter1d(im, 1.2, 0, 1, truncate=3.0)
gaussian_filter(im, 1, mode=("wrap", "reflect")) | gaussian_filter(byte, 1.0, output="f8") | gaussian_filter(im, 9.0)
sobel(im) | sobel(im, 0) | sobel(im4, mode="constant") | prewitt(im, 0) | laplace(im) | laplace(im, mode="wrap")
sobel(vol, 1) | uniform_filter(im) | uniform_filter(im, 4) | uniform_filter(im, (3, 5), mode="mirror")
uniform_filter(im4, 2) | convolve(im, w3) | convolve(im, w2) | convolve(im, w3, mode="constant", cval=1.0)
convolve(im, w3, origin=1) | correlate(im, w3) | correlate(im, w2, mode="wrap") | correlate(im, w3, origin=(0, -1))
correlate(im, w2, output="f4") | correlate1d(im, [1.0, 2.0, 4.0]) | correlate1d(im, [1.0, 2.0], 0)
convolve1d(im, [1.0, 2.0]) | convolve1d(im, [1, 2, 4], 0) | maximum_filter(im, 3) | minimum_filter(im, (2, 5))
maximum_filter(byte, 3, mode="constant") | minimum_filter(im, 4, mode="wrap") | sum_labels(im) | sum_labels(im, lab)
sum_labels(im, lab, [0, 1, 3, 7]) | sum_labels(im, lab, 2) | sum(im, lab, [1, 2]) | mean(im)
mean(im, lab, [0, 1, 3]) | mean(im, lab, 2) | mean(im, lab) | shift(im, 1.5, order=1)
shift(im, (2, -1.25), order=1, mode="nearest") | shift(im, 1.25, order=0) | shift(im, 3, order=1, cval=4.0)
shift(im, (0.3, -9.2), order=1, mode="mirror") | shift(im, 7.7, order=1, mode="reflect")
shift(im4, -2, order=0, mode="nearest") | zoom(im, 2, order=1) | zoom(im, (0.5, 1.7), order=1) | zoom(im4, 3, order=0)
zoom(vol, (1, 2, 0.5), order=1) | label(im > 0.6) | label(im > 0.35, numpy.ones((3, 3))) | label(vol > 0.5)
label(lab) | label(x > 0) | label(im > 2) | label(im > 0.5, [[1, 0, 0], [0, 1, 0], [0, 0, 1]])
label(byte, output="i8")
label(two) | label(empty) | label(none3) | sum_labels(neg, ints, []) | mean(neg, ints, []) | mean(neg, neg)
sum_labels(neg, neg) | sum_labels(two, ints, [0, 2]) | mean(nan, ints, [0, 3]) | sum_labels(inf, ints, [[0, 2]])
sobel(nan) | sobel(inf4) | prewitt(holes) | gaussian_filter1d(inf, 1.0, order=1) | laplace(two) | convolve(two, 2.0)
laplace(none3) | sobel(three0) | gaussian_filter(none3, 1.0) | gaussian_filter(two, 1.0) | maximum_filter(none3, 3)
minimum_filter(empty, 3) | uniform_filter(three0) | correlate(none3, w2) | convolve1d(empty, [1.0, 2.0])
shift(inf, 1, order=1) | shift(inf4, 0.5, order=1) | zoom(ints, 2, order=1) | shift(byte, 0.3, order=1)
shift(whole, 0.5, order=1) | shift(ints, 0.25, output="f8", order=1) | shift(none3, 1, order=1)
label(spiral) | label(spiral[:, ::-1]) | label(1 - spiral) | label(vol > 0.3, numpy.ones((3, 3, 3)))
"""
SPECIAL = """
erf(x) | erfc(x) | gamma(p) | gammaln(p * 9) | expit(x) | expit(e) | logit(p) | log_expit(e) | ndtr(x) | entr(e)
exp2(x) | exp10(x) | expm1(x) | log1p(p) | cbrt(x) | sinc(x) | xlogy(p, q) | xlogy(e, abs(e)) | xlog1py(p, q)
rel_entr(p, q) | rel_entr(e, e[::-1]) | kl_div(p, q) | kl_div(e, e[::-1]) | huber(0.5, x) | pseudo_huber(0.5, x)
betaln(p, q) | erf(g) | erf(whole) | expit(g) | entr(whole) | sinc(whole) | logsumexp(x) | logsumexp(p, 1)
logsumexp(p, axis=0, keepdims=True) | logsumexp(p, axis=1, b=q) | softmax(p) | softmax(p, axis=1) | log_softmax(p, 0)
softmax(g, axis=-1) | logsumexp(g) | logsumexp(e[:8]) | softmax(whole)
log_softmax(inf) | log_softmax(inf4) | log_softmax(nan) | log_softmax(-inf) | softmax(inf) | softmax(two, 0)
log_softmax(two, -1) | logsumexp(empty) | logsumexp(empty, 0, keepdims=True)
logsumexp(none3, 0) | logsumexp(none3, 1) | logsumexp(three0, axis=-1) | logsumexp(two, 0) | logsumexp(inf, b=ints)
logsumexp(empty, b=2.0) | logsumexp(nan) | logsumexp(inf4) | pseudo_huber(nil, pair) | pseudo_huber(neg, neg)
pseudo_huber(nan, ints) | betaln(nil, nil) | betaln(inf, pair[:1]) | betaln(pair[:1], inf) | betaln(inf, inf)
"""
STATS = """
zscore(x) | zscore(p) | zscore(p, 1, ddof=1) | zscore(g, axis=None) | zmap(p, q) | moment(x, 3) | moment(p, 2, 1)
skew(x) | skew(p, 1) | skew(x, bias=False) | kurtosis(x) | kurtosis(p, 1, False) | kurtosis(x, bias=False)
describe(x) | describe(p, 1) | describe(p, axis=None, ddof=0) | sem(x) | sem(p, 1) | variation(p) | gmean(p)
gmean(p, axis=None) | hmean(p, 1) | entropy(p) | entropy(p, q) | entropy(p, base=2) | entropy(p, axis=1) | rankdata(x)
rankdata(whole) | exact(rankdata(whole, "min")) | exact(rankdata(whole, "max")) | rankdata(p, axis=1)
exact(rankdata(whole, "ordinal")) | rankdata(p) | norm.pdf(x) | norm.pdf(x, 1, 2) | norm.logpdf(x, 1, scale=2.5)
norm.cdf(x) | norm.cdf(x, loc=0.5)
tuple(pearsonr(x, x**3)) | tuple(pearsonr(x, x[::-1], alternative="less")) | tuple(pearsonr(p, q, axis=1))
tuple(pearsonr(p[:2], q[:2])) | tuple(pearsonr(g[0], g[1], alternative="greater")) | tuple(pearsonr(x * 1e200, x[::-1]))
tuple(spearmanr(x, x[::-1])) | tuple(spearmanr(whole, whole[::-1])) | tuple(ttest_1samp(x, 0.1))
tuple(ttest_1samp(p, 0.5, axis=1)) | tuple(ttest_rel(p, q)) | tuple(ttest_ind(x, x[:100] + 0.1))
tuple(ttest_ind(p, q, axis=None, alternative="greater")) | tuple(ttest_ind(p, q[:3], alternative="less"))
entropy(nan) | entropy(inf) | entropy(-inf) | entropy(inf4) | entropy(neg) | entropy(nil) | entropy(holes)
entropy(two) | entropy(holes, axis=None) | entropy(empty) | entropy(none3, axis=1) | entropy(nan, ints)
entropy(ints, nan) | entropy(neg, inf) | entropy(nil, pair) | entropy(two, pair) | entropy(grid, grid[:1]) | hmean(neg)
hmean(-inf) | hmean(holes) | hmean(nan) | hmean(inf) | hmean(nil) | hmean(two) | hmean(empty) | hmean(none3)
gmean(neg) | gmean(two) | moment(inf) | moment(-inf, 1) | moment(big) | moment(nan) | moment(nan, 0) | moment(holes, 1)
moment(inf4) | moment(empty) | moment(two) | moment(none3, 0) | moment(three0) | moment(inf, 1, center=0)
moment(two, 2, center=1) | skew(two) | skew(pair, bias=False) | skew(nan) | kurtosis(neg, bias=False)
kurtosis(pair, bias=False) | kurtosis(two) | describe(two) | describe(ints) | describe(nan) | sem(two)
sem(neg, ddof=5) | variation(two) | variation(neg, ddof=5) | zscore(neg, ddof=5) | zscore(none3) | zscore(empty)
zscore(nan) | variation(none3) | kurtosis(three0, bias=False) | rankdata(empty) | rankdata(empty, "min")
rankdata(none3, axis=-1) | rankdata(none3, axis=0) | rankdata(three0, axis=1) | exact(rankdata(three0, "max", axis=0))
rankdata(two) | rankdata(nan) | rankdata(holes) | rankdata(holes, axis=0) | rankdata(inf) | tuple(spearmanr(nan, ints))
tuple(spearmanr(neg, nan)) | tuple(spearmanr(grid, grid[:, ::-1])) | tuple(spearmanr(grid))
tuple(spearmanr(holes, grid)) | tuple(spearmanr(holes)) | tuple(spearmanr(grid, axis=1))
tuple(spearmanr(grid, holes[:2], axis=1)) | tuple(spearmanr(grid, holes, axis=None)) | tuple(spearmanr(empty, empty))
tuple(spearmanr(two, two)) | tuple(spearmanr(pair, pair)) | tuple(spearmanr(nil, pair)) | tuple(spearmanr(p, q))
tuple(spearmanr(inf, neg, alternative="less")) | tuple(spearmanr(neg, inf, 1)) | tuple(pearsonr(nan, ints))
tuple(pearsonr(inf, neg)) | tuple(pearsonr(p, q, axis=None)) | tuple(ttest_1samp(two, 0.5))
tuple(ttest_1samp(empty, 0)) | tuple(ttest_1samp(none3, 0)) | tuple(ttest_1samp(none3, 0, axis=1))
tuple(ttest_1samp(nan, 1)) | tuple(ttest_rel(two, two)) | tuple(ttest_rel(empty, empty)) | tuple(ttest_rel(inf, neg))
tuple(ttest_ind(empty, empty)) | tuple(ttest_ind(empty, neg)) | tuple(ttest_ind(two, neg)) | tuple(ttest_ind(two, two))
tuple(ttest_ind(grid, neg)) | tuple(ttest_ind(grid, neg, axis=1)) | tuple(ttest_ind(none3, none3))
tuple(ttest_ind(none3, none3, axis=1)) | tuple(ttest_ind(nan, neg)) | norm.cdf(neg, 0, -1) | norm.sf(neg, 0, 0)
norm.cdf(e, 1, 0) | norm.pdf(e, 0, -1) | norm.sf(e) | norm.logpdf(nan, inf, 2)
norm.sf(x, 0.5, 3.0) | norm.pdf(whole) | norm.cdf(e) | zscore(whole) | describe(g, 1)
"""
CASES = [
    (section, line.strip())
    for section, lines in {"signal": SIGNAL, "ndimage": NDIMAGE, "special": SPECIAL, "stats": STATS}.items()
    for line in lines.replace("\n", "|").split("|")
    if line.strip()
]


def names(section: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    parts = {name: getattr(section, name) for name in dir(section) if not name.startswith("_")}
    return {**parts, **arrays, **COEFFICIENTS, "numpy": numpy, "abs": abs, "exact": exact}


def exact(ranks: Any) -> Any:
    """Whole ranks are i64 here and in SciPy up to 1.17, and f64 in SciPy 1.18."""
    return ranks.astype("int64")


def same(got: Any, want: Any, line: str) -> None:
    if isinstance(want, tuple):
        assert len(got) == len(want), line
        for one, other in zip(got, want, strict=True):
            same(one, other, line)
        return
    got = got.get() if isinstance(got, cb.GpuRef) else got
    want = numpy.asarray(want)
    single = numpy.asarray(got).dtype in ("f4", "c8")
    rtol, atol = (2e-4, 2e-5) if single else (1e-9, 1e-10)
    numpy.testing.assert_allclose(got, want, rtol, atol, err_msg=line)
    assert numpy.asarray(got).dtype == want.dtype, f"{line}: {numpy.asarray(got).dtype}, not {want.dtype}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("section", ["signal", "ndimage", "special", "stats"])
def test_lines_give_what_scipys_give(dev: cb.sync.Device, section: str) -> None:
    there = names(getattr(dev.scipy, section), {name: dev.np.asarray(x) for name, x in HOST.items()})
    here = names(getattr(scipy, section), HOST)
    failed = []
    for line in (line for part, line in CASES if part == section):
        try:
            same(eval(line, there), eval(line, here), line)
        except Exception as e:
            failed.append(f"{line}: {type(e).__name__} {' '.join(str(e).split())[:300]}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("order, edge", [(6, 0.05), (8, 0.1), (3, 0.5)])
def test_filters_of_high_order_keep_their_digits(dev: cb.sync.Device, order: int, edge: float) -> None:
    b, a = scipy.signal.butter(order, edge)
    x = numpy.random.default_rng(1).normal(size=5000)
    for taps in (b, [0.0, 0.0, *b[2:]], [*b, 0.5], b[:1]):
        got = dev.scipy.signal.lfilter(taps, a, dev.put(x)).get()
        want = scipy.signal.lfilter(taps, a, x)
        assert abs(got - want).max() <= 1e-8 * abs(want).max()


async def test_in_asyncio_nothing_waits() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as gpu:
        x, ba = gpu.put(HOST["x"]), COEFFICIENTS["ba"]
        numpy.testing.assert_allclose(
            await gpu.scipy.signal.lfilter(*ba, x).get(), scipy.signal.lfilter(*ba, HOST["x"])
        )
        f, _, z = gpu.scipy.signal.stft(x, nperseg=64)
        numpy.testing.assert_allclose(await z.get(), scipy.signal.stft(HOST["x"], nperseg=64)[2], atol=1e-12)
        assert isinstance(f, cb.GpuRef)
        image = gpu.scipy.ndimage.gaussian_filter(gpu.put(HOST["im"]), 2.0)
        numpy.testing.assert_allclose(await image.get(), scipy.ndimage.gaussian_filter(HOST["im"], 2.0))
        assert await gpu.scipy.stats.norm.cdf(x).get() == pytest.approx(scipy.stats.norm.cdf(HOST["x"]))
        r = gpu.scipy.stats.pearsonr(x, x * x)
        assert await r.statistic.get() == pytest.approx(scipy.stats.pearsonr(HOST["x"], HOST["x"] ** 2).statistic)
        assert r[0] is r.statistic
        for take in (lambda: r.pvalue, lambda: r[1], lambda: tuple(r)):
            with pytest.raises(TypeError, match="pvalue is computed on the host"):
                take()
        with pytest.raises(TypeError, match=r"scipy\.ndimage\.label: its number of passes"):
            gpu.scipy.ndimage.label(x)
        with pytest.raises(TypeError, match=r"b is on the device, .* give a list"):
            gpu.scipy.signal.lfilter(x, [1.0], x)


def test_statistics_with_probabilities_are_sequences(dev: cb.sync.Device) -> None:
    x = dev.put(HOST["x"])
    got, want = dev.scipy.stats.pearsonr(x, x**3), scipy.stats.pearsonr(HOST["x"], HOST["x"] ** 3)
    assert len(got) == len(want) == 2
    for index in (0, 1, -1, -2):
        assert float(got[index]) == pytest.approx(want[index])
    assert [float(value) for value in got[::-1]] == pytest.approx(want[::-1])
    assert [float(value) for value in got] == pytest.approx(list(want))
    assert isinstance(got[:1], tuple)
    with pytest.raises(IndexError):
        _ = got[2]


def test_the_module_computes_on_the_device_of_the_arrays(dev: cb.sync.Device) -> None:
    x = dev.put(HOST["x"])
    found = cb.scipy.special.erf(x)
    assert found.device == x.device
    numpy.testing.assert_allclose(found.get(), scipy.special.erf(HOST["x"]))
    numpy.testing.assert_allclose(cb.scipy.stats.norm.pdf(x).get(), scipy.stats.norm.pdf(HOST["x"]))
    assert {"signal", "ndimage", "special", "stats"} <= set(dir(cb.scipy))
    assert "stft" in dir(cb.scipy.signal)
    assert "stft" in dir(dev.scipy.signal)
    assert repr(cb.scipy.signal) == "<cb.scipy.signal>"
    assert repr(dev.scipy.stats.norm).startswith("<scipy.stats.norm of ")
    with pytest.raises(AttributeError, match=r"stats\.pearsonr"):
        _ = cb.scipy.stats.linregress


def test_what_is_left_out_is_a_name_of_scipys_with_a_reason(dev: cb.sync.Device) -> None:
    for path, (why, use) in left_out().items():
        assert operator.attrgetter(path)(scipy) is not None
        section, _, name = path.rpartition(".")
        with pytest.raises(AttributeError) as e:
            operator.attrgetter(path)(dev.scipy)
        own = f"scipy.{section}" if section else "dev.scipy"
        assert str(e.value) == f"{own} has no {name!r} on a device ({why}); use {use}"
    for path in TABLE:
        assert operator.attrgetter(path)(scipy) is not None, path
    with pytest.raises(AttributeError, match="fftconvolve"):
        _ = dev.scipy.signal.fftconvolv


REFUSED = {
    "signal.stft(x, nperseg=64, noverlap=64)": "noverlap is 64; it must be at least 0 and less than nperseg, 64",
    "signal.stft(x, nperseg=64, nfft=8)": "nfft is 8; it must be at least nperseg, 64",
    "signal.stft(x, window=k, nperseg=9)": r"window has the shape \(8,\), nperseg is 9",
    "signal.stft(x, boundary='odd')": "boundary is 'odd'; use 'zeros' or None",
    "signal.spectrogram(x, mode='angle')": "mode is 'angle'; use 'psd', 'complex' or 'magnitude'",
    "signal.welch(x, average='median')": "average is 'median'; only 'mean' is supported",
    "signal.welch(x, scaling='loud')": "scaling is 'loud'; use 'density' or 'spectrum'",
    "signal.convolve(x, im)": "both must have as many axes",
    "signal.convolve(x, x, 'half')": "mode is 'half'; use 'full', 'same' or 'valid'",
    "signal.convolve(x, x, method='fast')": "method is 'fast'",
    "signal.convolve(x, x, shape=2)": "scipy.signal.convolve: got an unexpected keyword argument 'shape'; the sup",
    "signal.detrend(x, type='cubic')": "the kind of trend is 'cubic'",
    "signal.lfilter([1.0], [0.0], x)": r"a\[0\] must not be 0",
    "signal.lfilter([1.0, 2.0], [1.0], x, zi=k)": "zi has 8 numbers along the axis, and the filter has a state of 1",
    "signal.sosfilt([[1.0, 2.0]], x)": r"sos must have the shape \(sections, 6\)",
    "signal.hilbert(c)": "x must be real",
    "ndimage.gaussian_filter(im, -1.0)": "sigma is -1.0; it must be at least 0",
    "ndimage.gaussian_filter(im, (1.0, 2.0, 3.0))": "3 values are given for 2 axes",
    "ndimage.sobel(im, mode='round')": "mode is 'round'; use one of reflect",
    "ndimage.convolve(im, [1.0, 2.0])": "weights have 1 axes, and the input has 2",
    "ndimage.correlate1d(im, [1.0, 2.0], origin=3)": "origin is 3; it must keep the kernel of 2 over its pixel",
    "ndimage.zoom(im, 2)": "order is 3; use order=0 or order=1: splines are not built",
    "ndimage.shift(im, 2, order=1, mode='wrap')": "mode is 'wrap'; use 'constant', 'nearest', 'mirror' or 'reflect'",
    "stats.rankdata(x, 'dense')": "method is 'dense'",
    "signal.lfilter([], [1.0], x)": "b and a must have one axis and at least one number",
    "signal.csd(x, k)": "x has 300 samples and y has 8; pad the shorter",
    "ndimage.shift(x, numpy.nan, order=1)": "shift is nan; it must be finite",
    "ndimage.zoom(two, 2, order=1)": r"input is f64\[\]; an image has at least one axis",
    "stats.moment(x, 1.5)": "order is 1.5; use a whole number",
    "stats.describe(three0)": r"a is f64\[3, 0\]; it needs at least one value",
    "stats.skew(p, 2)": r"axis is 2, and the values are f64\[4, 5\]; use an axis from -2 to 1",
    "stats.entropy(p, base=0)": "base is 0; it must be positive",
    "stats.pearsonr(two, two)": r"x and y must have at least 2 values along the axis; they are f64\[1\]",
    "stats.pearsonr(empty, x)": r"x and y must have one shape; they are f64\[0\] and f64\[300\]",
    "stats.spearmanr(empty, x)": r"as many observations; they are f64\[0\] and f64\[300\]",
    "stats.spearmanr(vol, vol)": r"a is f64\[5, 6, 7\]; it must have at most 2 axes",
    "stats.spearmanr(x)": r"a is f64\[300\], 1 variables; correlations need at least 2: give b",
    "stats.spearmanr(p, q, axis=2)": "axis is 2; use 0 or 1",
}


@pytest.mark.parametrize("line", REFUSED)
def test_wrong_arguments_are_refused_with_a_cure(dev: cb.sync.Device, line: str) -> None:
    there = {name: dev.np.asarray(x) for name, x in HOST.items()}
    with pytest.raises((ValueError, TypeError), match=REFUSED[line]):
        eval(
            line,
            {"numpy": numpy, **there, **{name: getattr(dev.scipy, name) for name in ("signal", "ndimage", "stats")}},
        )


def test_the_guide_lists_every_function() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "from-numpy.md").read_text()
    listed = guide.partition("## SciPy's names")[2].partition("These differences remain")[0]
    for section in SECTIONS:
        line = " ".join(listed.partition(f"* `{section}` (")[2].partition("* `")[0].split())
        assert set(re.findall(r"`(\w+)`", line.partition("): ")[2])) == names_of(section) - {"norm"}, section
