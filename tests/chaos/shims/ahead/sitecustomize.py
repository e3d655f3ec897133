"""Set the clock of a Python process ten minutes ahead. Files keep the time of the disk."""

import time

_time = time.time
time.time = lambda: _time() + 600
