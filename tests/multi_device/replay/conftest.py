"""``servers`` beside this file is shared."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode has no package to import it from
