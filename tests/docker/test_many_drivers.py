"""One MLflow for many: 16 drivers at once lose nothing, and none waits long."""

from pathlib import Path

import pytest

from benchmarks import many_drivers
from tests.docker.service import Service

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]
