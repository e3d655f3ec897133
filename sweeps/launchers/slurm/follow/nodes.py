"""The nodes that a study avoids, because trials failed there."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sweeps.launchers.slurm.queue import SlurmError, answer
from sweeps.trial.nodes import UNPROVEN

_MOST = 10  # excluded nodes; if more are bad, the fault is elsewhere
_LARGEST_SHARE = 0.25  # of the nodes
_TIMEOUT_S = 5  # because the driver waits for the answer


class AvoidedNodes:
    """The nodes that further jobs exclude, beside those that the user excludes."""

    def __init__(self, exclude: str | None) -> None:
        self._typed = exclude or ""
        self._bad: Mapping[str, str] = {}
        self._excluded: list[str] = []
        self.note = ""  # which nodes are excluded and why, or why none is

    def update(self, bad: Mapping[str, str], pending: Iterable[str]) -> None:
        """Let further jobs and the `pending` ones (ids) exclude the nodes in `bad`, unless there
        are too many.

        `bad` has the reason for each node.
        """
        if bad == self._bad:
            return
        self._bad = dict(bad)
        total = _count_nodes()
        most = min(_MOST, int(total * _LARGEST_SHARE))
        self._excluded = sorted(bad) if len(bad) <= most else []
        notes = [f"node {node} is excluded: it {reason}" for node, reason in bad.items()]
        self.note = "; ".join(notes)
        if len(bad) > most:
            proven = [node for node, reason in bad.items() if not reason.endswith(UNPROVEN)]
            too_many = f"None is excluded, because {len(bad)} of {total} are too many"
            self.note = f"bad nodes: {', '.join(proven)}. {too_many}" if proven else ""

        ids = ",".join(pending)
        if ids:
            nodes = self._merge(self._typed)
            _answer("scontrol", "update", f"JobId={ids}", f"ExcNodeList={nodes}")

    def exclude(self, requested: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a job without these nodes. A job whose user lists its nodes is
        not changed."""
        if not self._excluded or "nodelist" in requested["additional_parameters"]:
            return dict(requested)
        return {**requested, "exclude": self._merge(requested.get("exclude", ""))}

    def _merge(self, typed: str) -> str:
        return ",".join(filter(None, [typed, *self._excluded]))


def _count_nodes() -> int:
    lines = _answer("sinfo", "--noheader", "--Node", "--format=%N").splitlines()
    return len({line for line in lines if line and not line.startswith("CLUSTER:")})


def node_of(job_id: str) -> str:
    """Return the node of a job; "" if it has several, or if SLURM does not answer."""
    for word in _answer("scontrol", "--oneliner", "show", "job", job_id).split():
        name, _, nodes = word.partition("=")
        if name == "NodeList" and nodes != "(null)" and not {",", "["} & {*nodes}:
            return nodes
    return ""


def _answer(*command: str) -> str:
    """Return the output of a command of SLURM; "" if it fails, because no trial depends on it."""
    with suppress(SlurmError):
        return answer([*command], _TIMEOUT_S)
    return ""
