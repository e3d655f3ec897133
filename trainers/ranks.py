"""Detection of ranks that are lost or that hang."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from sweeps.trial import RankLost, Trial

_POLL_S = 1.0


@contextmanager
def detect_lost_ranks(size: int) -> Iterator[None]:
    """Raise RankLost in place of the error that TensorFlow raises if one of several ranks is
    lost."""
    try:
        yield
    except tf.errors.OpError as error:
        text = str(error)
        errors = tf.errors
        gone = (
            errors.UnavailableError,
            errors.AbortedError,
            errors.CancelledError,
            errors.DeadlineExceededError,
        )
        # by another process, after the port was chosen
        port_taken = "Could not start gRPC server" in text
        if size == 1 or not (isinstance(error, gone) or port_taken):
            raise
        details = text.partition("Collective ops is aborted by: ")[2] or text
        problem = "its port is taken" if port_taken else "another rank is gone"
        raise RankLost(f"{problem}: {details.strip().splitlines()[0][:200]}") from error


class Watchdog:
    """Ends this process, and so the attempt, if `steps` does not change for too long inside the
    context.

    TensorFlow waits without a time limit for a rank that hangs. Its timeout_seconds is no
    alternative, because each collective then leaves two threads that sleep until the timeout.
    """

    def __init__(self, trial: Trial) -> None:
        # number of steps of this rank; None before a strategy exists
        self.steps: tf.Variable | None = None
        self._trial = trial
        self._entered_at: float | None = None
        if trial.world.size > 1:
            threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> None:
        self._entered_at = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._entered_at = None

    def _watch(self) -> None:
        world = self._trial.world
        last_count = -1
        changed_at = 0.0
        while True:
            time.sleep(_POLL_S)
            entered_at = self._entered_at
            if entered_at is None:
                continue
            count = 0 if self.steps is None else int(self.steps.numpy())
            if count != last_count:
                last_count = count
                changed_at = time.monotonic()
            if time.monotonic() - max(changed_at, entered_at) > world.timeout_s:
                self._trial.abandon(
                    f"one of {world.size} ranks hangs: none took a step after step {count} for"
                    f" longer than rank_timeout_s={world.timeout_s:g}"
                )
