"""Seconds that one more short trial of somebody else's Keras app (keras_app.py) costs, two at a time: what 64 trials
take longer than 16, in a sweep with tracking, in hydra-joblib-launcher, and in two processes that share an Optuna
study. The last two isolate no trial from the next.

    python benchmarks/further_trial.py [rounds]
"""

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import machine, run, seconds, spread

APP = str(Path(__file__).with_name("keras_app.py"))
FEW, MANY = 16, 64


def sweep(trials: int, folder: Path) -> None:
    chosen = ["hydra/sweeper=grid", "hydra/launcher=local", "hydra.launcher.preload=[keras,sklearn.datasets]"]
    run([sys.executable, APP, "-m", *chosen, "+lr=0.001", f"+seed=range({trials})"], folder)


def joblib(trials: int, folder: Path) -> None:
    chosen = ["hydra/sweeper=basic", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    run([sys.executable, APP, "-m", *chosen, "+lr=0.001", f"+seed=range({trials})"], folder)


def optuna_processes(trials: int, folder: Path) -> None:
    command = [sys.executable, __file__, "--optuna", str(trials // 2)]
    processes = [subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) for _ in range(2)]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit("two Optuna processes failed")


def optimize(trials: int) -> None:
    """What each of them runs."""
    import optuna
    from keras_app import train
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    storage = JournalStorage(JournalFileBackend("study.journal"))
    study = optuna.create_study(study_name="s", storage=storage, load_if_exists=True, direction="maximize")
    study.optimize(lambda trial: train(0.001, trial.suggest_int("seed", 0, 1000)), trials)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    ways = {"sweep": sweep, "joblib": joblib, "two Optuna processes": optuna_processes}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            taken = []
            for trials in (FEW, MANY):
                with tempfile.TemporaryDirectory() as folder:
                    taken.append(seconds(lambda way=way, trials=trials, folder=folder: way(trials, Path(folder))))
            found[name].append((taken[1] - taken[0]) / (MANY - FEW))
    print(f"one more trial of plain Keras, two at a time ({MANY} against {FEW}), {rounds} rounds; {machine()}")
    for name, values in found.items():
        ratios = [other / own for other, own in zip(values, found["sweep"], strict=True)]
        print(f"  {name:21} {spread(values):34} {statistics.median(ratios):.2f} times the sweep")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--optuna"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        optimize(int(sys.argv[2]))
    else:
        main()
