"""Random kills, damage and failures of MLflow around a study on this machine."""

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from tests.chaos.faults import TRIALS, Study, chance_of
from tests.chaos.oracle import check
from tests.command_lines import GRID
from tests.tracking.proxy import MODES, proxy_of
from tests.tracking.studies import Server

pytestmark = pytest.mark.long
ROUNDS, EPOCHS = int(os.environ.get("CHAOS_ROUNDS", "30")), 12


@pytest.mark.parametrize("number", range(ROUNDS))
def test_study_survives_random_faults(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    for name, value in {"MAX_RETRIES": "1", "BACKOFF_FACTOR": "0", "TIMEOUT": "2"}.items():
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)  # because the proxy's faults last
    chance = chance_of(number)
    with ExitStack() as stack:
        proxy = stack.enter_context(proxy_of(server.uri))
        study = Study(tmp_path / "work", chance.choice([proxy.uri, f"sqlite:///{tmp_path}/mlflow.db"]), EPOCHS)
        for _ in range(chance.randint(1, 3)):
            driver = study.start(GRID)
            for _ in range(chance.randint(1, 2)):
                time.sleep(chance.uniform(0.2, 5))
                proxy.mode = chance.choice(["", *MODES]) if (study.path / "journal.jsonl").exists() else ""
                print("MLflow:", proxy.mode)
                with suppress(psutil.NoSuchProcess):
                    process = psutil.Process(driver.pid)
                    study.kill_one(chance, [process, *process.children(recursive=True)])
            driver.kill()
            print(driver.communicate()[0])
            if chance.random() < 0.5:
                study.damage_one(chance)
        proxy.mode = ""
        for _ in range(3):  # because a trial whose params are lost counts as failed, and is replaced
            if study.finish(study.start(GRID)).code == 0:
                break
        check(study.path, f"sqlite:///{tmp_path}/mlflow.db", TRIALS, EPOCHS)
