"""Names of SciPy that ``dev.scipy`` lacks: why, and what to use instead."""

from collections.abc import Mapping

__all__ = ["LEFT_OUT", "left_out"]

LEFT_OUT: Mapping[str, tuple[str, str]] = {
    "systems and factors have names of their own": (
        "dev.np.linalg and dev.solver",
        "linalg",
    ),
    "transforms have names of their own": (
        "dev.np.fft and dev.fft",
        "fft",
    ),
    "matrices of a device are made of their parts": (
        "dev.sparse, and dev.solver.sparse_factor to solve with them",
        "sparse",
    ),
    "work of the host, step by step; not built": (
        "SciPy with x.get()",
        "optimize interpolate integrate spatial cluster",
    ),
    "a few numbers of a whole image; not built": (
        "sums of np with indices of np.meshgrid, or scipy.ndimage with x.get()",
        "ndimage.center_of_mass ndimage.extrema ndimage.histogram",
    ),
    "the least and the greatest of neighbours": (
        "ndimage.minimum_filter and ndimage.maximum_filter (of a mask as u8)",
        "ndimage.binary_erosion ndimage.binary_dilation ndimage.grey_erosion ndimage.grey_dilation",
    ),
    "a search whose results the values decide; not built": (
        "np.nonzero of comparisons with shifted slices, or scipy.signal with x.get()",
        "signal.find_peaks signal.argrelextrema signal.argrelmax signal.argrelmin",
    ),
    "products of two axes": (
        "signal.fftconvolve, or ndimage.convolve",
        "signal.convolve2d signal.correlate2d",
    ),
    "an order of the values": (
        "np.percentile, np.unique with counts, or scipy.stats with x.get()",
        "stats.iqr stats.mode",
    ),
    "a design of filters: a few numbers, which the host makes": (
        "scipy.signal, whose coefficients the filters here take",
        "signal.butter signal.cheby1 signal.cheby2 signal.ellip signal.bessel signal.firwin signal.freqz",
    ),
    "the transforms keep no object; not built": (
        "signal.stft and signal.istft",
        "signal.ShortTimeFFT",
    ),
    "not built: they run a filter forwards and backwards from states of the host": (
        "lfilter or sosfilt, np.flip, and again",
        "signal.filtfilt signal.sosfiltfilt",
    ),
    "slices of the host, or passes whose number the values decide; not built": (
        "ndimage.label, and scipy.ndimage with x.get()",
        "ndimage.find_objects ndimage.watershed_ift ndimage.binary_fill_holes",
    ),
    "a selection of each pixel's neighbours: no part exists": (
        "scipy.ndimage with x.get()",
        "ndimage.median_filter ndimage.percentile_filter ndimage.rank_filter",
    ),
    "coordinates that differ by pixel: a gather in several axes": (
        "ndimage.shift and ndimage.zoom with order=1, or scipy.ndimage with x.get()",
        "ndimage.rotate ndimage.affine_transform ndimage.map_coordinates ndimage.geometric_transform",
    ),
    "splines are not built": (
        "ndimage.zoom with order=1",
        "ndimage.spline_filter ndimage.spline_filter1d",
    ),
    "a function that expressions of elements lack": (
        "scipy.special with x.get()",
        (
            "special.digamma special.polygamma special.ndtri special.erfinv special.erfcinv "
            "special.i0 special.i0e special.i1 special.i1e special.j0 special.j1 special.y0 special.y1 "
            "special.gammainc special.log_ndtr special.gammaincc special.betainc special.zeta special.exp1"
        ),
    ),
    "a test or a fit that is not built": (
        "np.polyfit, stats.pearsonr, or scipy.stats with x.get()",
        "stats.linregress stats.kendalltau stats.f_oneway stats.mannwhitneyu stats.ks_2samp stats.chisquare",
    ),
    "the inverse of erfc, which expressions of elements lack": (
        "scipy.stats.norm.ppf with x.get()",
        "stats.norm.ppf stats.norm.isf",
    ),
}
"""By reason: what to use in their place, and the names."""


def left_out() -> dict[str, tuple[str, str]]:
    """The reason and the alternative of each name that is left out."""
    return {name: (why, use) for why, (use, names) in LEFT_OUT.items() for name in names.split()}
