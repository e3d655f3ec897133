"""Retries: a new attempt for each trial that has begun and not ended."""

from sweeps.choose import Next
from sweeps.record.study import StudySnapshot
from sweeps.trial.job import State


class Retries:
    """A chooser that resumes trials that were lost or timed out, and the open trials of an earlier
    driver."""

    def next(self, study: StudySnapshot) -> Next:
        """Return the first queued trial that is not under way. If the search has enough, skip the
        search's trials."""
        for trial in study.open:
            waits = trial.state is State.QUEUED and trial.number not in study.under_way
            if waits and not (study.enough and trial.ends_with_search):
                return Next(resume=[trial.number])
        return Next()
