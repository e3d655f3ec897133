"""The cases: small Hydra apps with their configs and a command line each, read from the texts in cases/.

    ## name of the case
    What people write so, in a sentence.
    $ python app.py -m x=1,2
    ! option
    --- conf/config.yaml
    x: 1

A path such as a.zip/b.py is packed. A case without an app.py has `APP`. The options are:

    quick             README's test line runs the case, too
    fresh             its processes are no forks of a warm process
    fails             Hydra's exit code is not 0
    in FOLDER         where the command is typed
    env NAME=VALUE    a variable of the environment
    differs ROW       a row of the docs' table that this case alone shows
"""

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

CASES = Path(__file__).parent / "cases"
APP = """
import hydra
import probe


@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(cfg):
    return probe.show(cfg)


if __name__ == "__main__":
    main()
"""


@dataclass
class Case:
    """A Hydra app, and a command line that sweeps it."""

    name: str
    sentence: str = ""
    command: list[str] = field(default_factory=list)  # without `python`
    files: dict[str, str] = field(default_factory=dict)  # content by path
    options: dict[str, list[str]] = field(default_factory=dict)  # values by name, empty texts for options without one

    @property
    def is_quick(self) -> bool:
        return "quick" in self.options

    @property
    def is_fresh(self) -> bool:
        return "fresh" in self.options

    @property
    def fails(self) -> bool:
        return "fails" in self.options

    @property
    def launches(self) -> str:
        """Return the folder where the command is typed, relative to the case's folder."""
        return self.options.get("in", ["."])[0]

    @property
    def environment(self) -> dict[str, str]:
        return dict(setting.split("=", 1) for setting in self.options.get("env", []))

    def write(self, folder: Path) -> None:
        """Write the files of the case into a folder."""
        (folder / self.launches).mkdir(parents=True)
        for name, content in self.files.items():
            archive, _, member = name.rpartition(".zip/")
            if archive:
                with ZipFile(folder / f"{archive}.zip", "a") as packed:
                    packed.writestr(member, content)
                continue
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content.replace("HERE", str(folder)))


def read_cases() -> list[Case]:
    """Return all cases, in the order of the files."""
    cases: list[Case] = []
    for file in sorted(CASES.glob("*.txt")):
        for text in re.split(r"^## ", file.read_text(), flags=re.MULTILINE)[1:]:
            cases.append(_parse(text))
    return cases


def _parse(text: str) -> Case:
    head, *parts = re.split(r"^--- ", text, flags=re.MULTILINE)
    name, *lines = head.splitlines()
    case = Case(name.strip())
    for line in lines:
        sign, _, rest = line.partition(" ")
        if sign == "$":
            case.command = shlex.split(rest)[1:]
        elif sign == "!":
            option, _, value = rest.partition(" ")
            case.options.setdefault(option, []).append(value)
        else:
            case.sentence = f"{case.sentence} {line}".strip()
    for part in parts:
        path, _, content = part.partition("\n")
        case.files[path.strip()] = content.rstrip("\n") + "\n"
    if "app.py" in case.command and "app.py" not in case.files:
        case.files["app.py"] = APP.lstrip()
    assert case.command and case.sentence, f"case {name} has no command or no sentence"
    return case
