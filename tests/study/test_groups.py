"""Swept groups: on the app's own search path, choices that are none, and advice on keys that some choices lack."""

import shlex
from pathlib import Path

from tests.command_lines import Done, refuse, some

APP = """
import hydra

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    return 1.0

if __name__ == "__main__":
    main()
"""
FILES = {
    "app.py": APP,
    "conf/config.yaml": "defaults: [{server: plain}, _self_]\nx: 1\nhydra: {searchpath: ['file://HERE/more']}\n",
    "conf/server/plain.yaml": "name: plain",
    "conf/server/apache.yaml": "name: apache\nport: 80",
    "conf/server/nginx.yaml": "name: nginx\nport: 81",
    "more/experiment/e1.yaml": "# @package _global_\nx: 10",
    "more/experiment/e2.yaml": "# @package _global_\nx: 20",
    "more/net/deep/3.yaml": "depth: 3",
    "typed/loss/mse.yaml": "name: mse",
    "typed/loss/mae.yaml": "name: mae",
}
LISTED = "'hydra.sweeper.points=[{+experiment: e1, x: 5},{+experiment: e2, x: 6}]'"
UNDER = r"""'+hydra.sweeper.conditional_params={server\=apache: {+experiment: "e1,e2"}}'"""


def preview(words: str, folder: Path) -> Done:
    """Return the answer to a command line of an app with these files, which starts no trial."""
    for name, content in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content.replace("HERE", str(folder)))
    settings = ["hydra/launcher=local", "hydra.sweeper.tracking=false", "hydra.sweeper.preview=true"]
    return refuse(["app.py", "-m", "hydra/sweeper=grid", *settings, *shlex.split(words)], folder)


@some(
    ("words", "points"),
    [
        ("+experiment=e1,e2", ["+experiment=e1", "+experiment=e2"]),
        ("'+experiment=glob(*)'", ["+experiment=e1", "+experiment=e2"]),
        ("'+experiment@here=glob(*2)'", ["+experiment@here=e2"]),
        ("'+experiment=[e1,e2],[e2]'", ["+experiment=[e1,e2]", "+experiment=[e2]"]),
        ("\"+net/deep='3'\" x=1,2", ["+net/deep='3' x=1", "+net/deep='3' x=2"]),
        ("'hydra.searchpath=[file://typed]' '+loss=glob(*)'", ["+loss=mae", "+loss=mse"]),
        ("~server +experiment=e1,e2", ["~server=null +experiment=e1", "~server=null +experiment=e2"]),
        (LISTED, ["+experiment=e1 x=5", "+experiment=e2 x=6"]),
        (
            "'both=zip(+experiment=[e1,e2],server=[apache,nginx])'",
            ["+experiment=e1 server=apache", "+experiment=e2 server=nginx"],
        ),
        (
            "server=apache '+experiment=e1' 'hydra.sweeper.also=[\"server=nginx +experiment=e2\"]'",
            ["server=apache +experiment=e1", "server=nginx +experiment=e2"],
        ),
        (
            f"server=plain,apache {UNDER}",
            ["server=plain", "server=apache +experiment=e1", "server=apache +experiment=e2"],
        ),
    ],
    4,
)
def test_groups_of_the_search_path_are_swept_as_groups(words: str, points: list[str], tmp_path: Path) -> None:
    done = preview(words, tmp_path)
    assert done.code == 0, done.said
    planned = [line.strip().split() for line in done.out.splitlines() if line.startswith("  ")]
    assert sorted(map(sorted, planned)) == sorted(sorted(shlex.split(point, posix=False)) for point in points)


@some(
    ("words", "message"),
    [
        ("+experiment=e1,ee2", "experiment=ee2 does not exist. Did you mean experiment=e2?\nChoose one of: e1, e2"),
        ("'+experiment=[e1,nope]'", "experiment/nope.yaml, which config.yaml needs, does not exist.\nCorrect its name"),
        ("experiment=e1,e2", "experiment"),
        ("server=apache,null", "server=null: a choice of server is a name.\nChoose one of: apache, nginx, plain"),
        ("+net/deep=3,4", "a choice of net/deep is a name.\nType it in quotes: "),
        ("'+experiment=glob(x*)'", "+experiment=glob(x*) has no values"),
    ],
    3,
)
def test_choices_that_do_not_exist_are_refused(words: str, message: str, tmp_path: Path) -> None:
    done = preview(words, tmp_path)
    assert done.code == 2, done.said
    assert message in done.err
    assert len(done.err.strip().splitlines()) <= 2, done.err
    assert "Traceback" not in done.err


@some(
    ("words", "wrong"),
    [
        ("server=apache,nginx", "server.port=8081"),
        ("server=apache,nginx", "+server.port=8081"),
        ("server=apache,nginx", "+server.port=8081,8082"),
        ("server=apache,plain", "server.port=8081"),
        ("server=apache,plain", "server.port=8081,8082"),
        ("server=plain,apache ~x", "server.port=8081,8082"),
        ("x=1,2", "server.port=8081"),
        ("x=1,2", "server.port=8081,8082"),
        ("x=1,2", "+x=3"),
        ("+experiment=e1,e2", "new='a b'"),
        ("+experiment=e1,e2", "\"new='a b','c: d'\""),
        ("server=apache x=1,2", "+server.port=1"),
    ],
    12,
)
def test_advice_on_a_key_can_be_typed(words: str, wrong: str, tmp_path: Path) -> None:
    refused = preview(f"{words} {wrong}", tmp_path)
    assert refused.code == 2, refused.said
    *_, advice = refused.err.strip().splitlines()
    typed = advice if advice.startswith("'") else advice.partition(": ")[2]
    done = preview(f"{words} {typed}", tmp_path)
    assert done.code == 0, f"{refused.err}\n{done.said}"
