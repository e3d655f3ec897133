"""One MLflow for many: 16 drivers at once lose nothing."""

from pathlib import Path

import pytest

from tests.command_lines import ROOT
from tests.docker.service import Service

pytestmark = [pytest.mark.service, pytest.mark.timeout(600)]


def test_sixteen_drivers_lose_nothing(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import many_drivers  # type: ignore[import-not-found]

    service.client("alice")  # whom the drivers' environment names, too
    ended = many_drivers.at_once(service.uri, 16, tmp_path)
    assert many_drivers.lacking(service.uri, ended) == []
    assert max(one.waited_s for one in ended.values()) < 30  # docs/service.md has what a quiet machine needs
