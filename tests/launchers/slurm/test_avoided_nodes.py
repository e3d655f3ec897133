"""The nodes that further jobs exclude."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab import ScriptedSlurm

from sweeps.hydra.settings import SlurmLauncherConf
from sweeps.launchers.slurm.follow.nodes import AvoidedNodes, node_of
from sweeps.launchers.slurm.launcher import SlurmTrials
from sweeps.trial.nodes import UNPROVEN
from sweeps.trial.run.sent_job import Job
from tests.launchers.launcher_contract import exits

FAILED = "failed while it had a trial"


def avoided(slurm: ScriptedSlurm, nodes: int, *bad: str, typed: str | None = None) -> AvoidedNodes:
    """Return the avoided nodes of a cluster with so many nodes, of which some are `bad`. Jobs 7 and 8 are pending."""
    slurm.say(
        "sinfo", f'echo >> "$F/counted"; echo CLUSTER: c; seq -f n%g {nodes}; seq -f n%g {nodes}'
    )  # twice: in two partitions
    slurm.say("scontrol", 'echo "$@" >> "$F/updated"')
    nodes_to_avoid = AvoidedNodes(typed)
    for _ in range(2):
        nodes_to_avoid.update(dict.fromkeys(bad, FAILED), ["7", "8"])
    return nodes_to_avoid


def excluded(nodes: AvoidedNodes, typed: str | None = None, **options: str) -> Any:
    requested = {"additional_parameters": options, **({"exclude": typed} if typed else {})}
    return nodes.exclude(requested).get("exclude")


def test_bad_nodes_join_the_nodes_of_the_setting(scripted_slurm: ScriptedSlurm) -> None:
    nodes = avoided(scripted_slurm, 8, "n3", "n1", typed="old[1-2]")
    assert excluded(nodes) == "n1,n3"
    assert excluded(nodes, "old[1-2]") == "old[1-2],n1,n3"
    assert excluded(nodes, nodelist="n1") is None  # because SLURM would refuse the job
    assert nodes.note == f"node n3 is excluded: it {FAILED}; node n1 is excluded: it {FAILED}"
    assert scripted_slurm.lines("updated") == ["update JobId=7,8 ExcNodeList=old[1-2],n1,n3"]
    assert len(scripted_slurm.lines("counted")) == 1


@pytest.mark.parametrize(
    ("total", "count", "is_too_many"), [(8, 2, False), (8, 3, True), (100, 10, False), (100, 11, True), (3, 1, True)]
)
def test_too_many_bad_nodes_are_not_excluded(
    scripted_slurm: ScriptedSlurm, total: int, count: int, is_too_many: bool
) -> None:
    nodes = avoided(scripted_slurm, total, *(f"n{i}" for i in range(count)))
    assert (excluded(nodes) is None) == is_too_many
    assert nodes.note.endswith(f"None is excluded, because {count} of {total} are too many") == is_too_many


def test_node_that_may_not_be_at_fault_is_not_called_bad(scripted_slurm: ScriptedSlurm) -> None:
    nodes = avoided(scripted_slurm, 2)
    nodes.update({"n1": f"could not begin 2 trials, {UNPROVEN}"}, [])
    assert (excluded(nodes), nodes.note) == (None, "")


def test_nodes_are_included_again_once_too_many_are_bad(scripted_slurm: ScriptedSlurm) -> None:
    nodes = avoided(scripted_slurm, 4, "n1")
    assert excluded(nodes) == "n1"
    nodes.update(dict.fromkeys(("n1", "n2"), FAILED), ["9"])
    assert excluded(nodes) is None
    assert scripted_slurm.lines("updated")[-1] == "update JobId=9 ExcNodeList="


def test_without_an_answer_no_node_is_excluded(scripted_slurm: ScriptedSlurm) -> None:
    nodes = avoided(scripted_slurm, 8)
    scripted_slurm.say("sinfo", "exit 1")
    nodes.update({"n1": FAILED}, [])
    assert excluded(nodes) is None


@pytest.mark.parametrize(
    ("answer", "node"),
    [
        ("JobId=7 ReqNodeList=a ExcNodeList=b NodeList=lab1 BatchHost=lab1", "lab1"),
        ("JobId=7 NodeList=lab[1-2]", ""),
        ("JobId=7 NodeList=(null)", ""),
        ("", ""),
    ],
)
def test_node_of_a_job(scripted_slurm: ScriptedSlurm, answer: str, node: str) -> None:
    scripted_slurm.say("scontrol", f'[ "$*" = "--oneliner show job 7" ] && echo "{answer}"')
    assert node_of("7") == node


def test_job_is_submitted_without_bad_nodes(
    scripted_slurm: ScriptedSlurm, make_job: Callable[..., Job], tmp_path: Path
) -> None:
    scripted_slurm.say("sinfo", "seq -f n%g 8")
    trials = SlurmTrials(SlurmLauncherConf(), tmp_path)
    trials.avoid({"n3": FAILED})
    assert trials.submit(make_job(0, exits))
    trials.poll(0.0)
    assert "#SBATCH --exclude=n3" in scripted_slurm.lines("script")
    assert f"node n3 is excluded: it {FAILED}" in trials.notes()
    trials.close(keep=True)
