"""The imports that a configuration needs."""

import pkgutil
import subprocess
import sys

from tests.command_lines import ROOT
from trainers import config


def test_configuration_loads_without_tensorflow() -> None:
    modules = [f"trainers.config.{module.name}" for module in pkgutil.iter_modules(config.__path__)]
    assert "trainers.config.schema" in modules
    heavy = "{'tensorflow', 'keras', 'sklearn', 'PIL', 'h5py', 'mlflow', 'trainers.trainer'}"
    code = f"import sys, {', '.join(modules)}; sys.exit(str({heavy} & set(sys.modules) or ''))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == ""
