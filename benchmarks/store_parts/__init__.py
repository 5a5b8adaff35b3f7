"""What `benchmarks/store.py` measures, a file a group of parts."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))  # servers, and what kills them, are those of the tests
