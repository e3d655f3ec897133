"""Trials that were begun and have not ended: a new attempt for each."""

from sweeps.choose import Next
from sweeps.record.study import StudySnapshot
from sweeps.trial.job import State


class Retries:
    """Goes on with what was lost or reached its time limit, and with what an earlier driver left."""

    def next(self, study: StudySnapshot) -> Next:
        """Return the first trial that is queued and not under way; once the search has enough, none of the search."""
        for trial in study.open:
            waits = trial.state is State.QUEUED and trial.number not in study.under_way
            if waits and not (study.enough and trial.searched):
                return Next(resume=[trial.number])
        return Next()
