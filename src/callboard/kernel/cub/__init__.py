"""Parallel primitives: reductions, scans, sorts, selections, histograms (``CubActor``)."""

from callboard.kernel.cub.actor import *
from callboard.kernel.cub.histograms import *
from callboard.kernel.cub.reductions import *
from callboard.kernel.cub.runs import *
from callboard.kernel.cub.scans import *
from callboard.kernel.cub.searching import *
from callboard.kernel.cub.selection import *
from callboard.kernel.cub.sorting import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
