"""Puts the repository on sys.path as sweep.py does, and Hydra's plugin namespace with it."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
for folder in (ROOT, ROOT / "sweeps"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
