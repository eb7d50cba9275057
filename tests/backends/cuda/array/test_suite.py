"""The conformance suite on the stand-ins: arguments of the kernels, reports of faults."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_array import *  # noqa: F403 - its tests, with this folder's session
