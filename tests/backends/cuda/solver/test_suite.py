"""The conformance suites on the stand-ins: copies, triangles, sides, status."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "conformance"))

from test_solver import *  # noqa: F403 - its tests, with this folder's session
