"""What a rank of a training does when another one does not come any more."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf

from sweeps.trial import RankLost, Trial

_LOOK_S = 1.0


@contextmanager
def naming_lost_ranks(size: int) -> Iterator[None]:
    """Raise RankLost for what TensorFlow raises when one of several ranks is gone."""
    try:
        yield
    except tf.errors.OpError as error:
        said = str(error)
        errors = tf.errors
        gone = (errors.UnavailableError, errors.AbortedError, errors.CancelledError, errors.DeadlineExceededError)
        port_taken = "Could not start gRPC server" in said  # by another process, since it was found free
        if size == 1 or not (isinstance(error, gone) or port_taken):
            raise
        reason = said.partition("Collective ops is aborted by: ")[2] or said
        what = "its port is taken" if port_taken else "another rank is gone"
        raise RankLost(f"{what}: {reason.strip().splitlines()[0][:200]}") from error


class Patience:
    """Ends this process, and so the attempt, when `steps` stands still for too long while it is entered.

    TensorFlow waits without end for a rank that lives and takes no step. Its own timeout_seconds is no way out: each
    collective leaves two threads behind that sleep for so long.
    """

    def __init__(self, trial: Trial) -> None:
        self.steps: tf.Variable | None = None  # counts those of this rank, once there is a place for it
        self._trial = trial
        self._entered_at: float | None = None
        if trial.world.size > 1:
            threading.Thread(target=self._watch, daemon=True).start()

    def __enter__(self) -> None:
        self._entered_at = time.monotonic()

    def __exit__(self, *error: object) -> None:
        self._entered_at = None

    def _watch(self) -> None:
        world, seen, moved_at = self._trial.world, -1, 0.0
        while True:
            time.sleep(_LOOK_S)
            entered_at = self._entered_at
            if entered_at is None:
                continue
            count = 0 if self.steps is None else int(self.steps.numpy())
            if count != seen:
                seen, moved_at = count, time.monotonic()
            if time.monotonic() - max(moved_at, entered_at) > world.timeout_s:
                self._trial.abandon(
                    f"one of {world.size} ranks hangs: none took a step after step {count} for longer than "
                    f"rank_timeout_s={world.timeout_s:g}"
                )
