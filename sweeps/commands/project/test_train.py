import subprocess
import sys
from pathlib import Path


def test_one_configuration_trains(tmp_path: Path) -> None:
    train = Path(__file__).with_name("train.py")
    subprocess.run([sys.executable, train, "epochs=2", f"hydra.run.dir={tmp_path}"], check=True)
