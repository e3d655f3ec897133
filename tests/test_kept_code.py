"""An imported module edited during a study changes no trial until the study is extended."""

from pathlib import Path

import pytest

from tests.command_lines import GRID, Done, end, rows, run, sweeps

APP = """
import hydra
from pathlib import Path

@hydra.main(version_base="1.3", config_path=None)
def main(cfg):
    from lib import helper

    data = Path(helper.__file__).with_name("data.txt").read_text()
    if cfg.x == 1:  # as if the author edited the module during the study
        (Path(__file__).parent / "lib" / "helper.py").write_text("VALUE = 2.0\\n")
    return {"value": helper.VALUE, "data": float(data)}

if __name__ == "__main__":
    main()
"""
FILES = {"app.py": APP, "lib/__init__.py": "", "lib/helper.py": "VALUE = 1.0\n", "lib/data.txt": "7"}


@pytest.mark.long
def test_trials_run_the_code_of_the_studys_start(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_text(content)
    folder = tmp_path / "runs"

    def sweep(*words: str) -> Done:
        more = ["hydra.sweeper.n_jobs=1", "hydra.sweeper.tracking=false", "hydra.sweeper.study_name=s"]
        return run([str(tmp_path / "mine" / "app.py"), "-m", *GRID, *more, *words], folder)

    def metrics() -> list[dict[str, float]]:
        return [end(row.folder).metrics for row in rows(folder / "multirun" / "s") if row.attempts]

    old, new = ({"value": value, "data": 7.0} for value in (1.0, 2.0))
    done = sweep("+x=1,2,3")
    assert done.code == 0, done.said
    assert metrics() == [old, old, old]

    refused = sweep("+x=1,2,3")
    assert (refused.code, refused.out) == (2, "")
    assert "study s was started with other code: lib/helper.py. The code at its start: " in refused.err
    assert refused.err.strip().endswith("hydra.sweeper.study_name=s hydra.sweeper.extend=true")
    resumed = sweeps(folder, "resume", "s")
    assert (resumed.code, resumed.err) == (2, refused.err)

    extended = sweep("+x=1,2,3,4", "hydra.sweeper.extend=true")
    assert extended.code == 0, extended.said
    assert metrics() == [old, old, old, new]
