"""Facts that an attempt leaves in its folder, and their readers."""

import platform
import socket
from pathlib import Path

import pytest

from sweeps.trial import Trial, World
from sweeps.trial.folder import TrialFolder
from sweeps.trial.machine import facts


def test_machine_versions_and_used_settings(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    assert facts.read(folder) == facts.Facts()
    attempt = folder.new_attempt()
    with pytest.raises(RuntimeError), facts.recording(attempt):
        # A killed process has recorded these facts.
        assert facts.read(folder).process["host"] == socket.gethostname()
        Trial(folder, 1).record_settings({"batch_size": 256, "steps": 1170})
        Trial(folder, 1, world=World(rank=1, size=2)).record_settings({"batch_size": 128})  # not the chief
        raise RuntimeError
    recorded = facts.read(folder)
    assert recorded.settings == {"batch_size": 256, "steps": 1170}
    assert {"host", "versions"} <= recorded.process.keys() <= set(facts.PROCESS)
    assert f"python {platform.python_version()}" in recorded.process["versions"]
    folder.new_attempt()
    assert facts.read(folder) == facts.Facts()  # because the new attempt may run elsewhere


def test_recorded_secrets_are_masked(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    facts.record(attempt, settings={"api_key": "sesame", "url": "http://me:sesame@host"})
    assert "sesame" not in (attempt.path / "facts.jsonl").read_text()


def test_damaged_lines_are_omitted(tmp_path: Path) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    facts.record(attempt, settings={"steps": 7})
    with (attempt.path / "facts.jsonl").open("ab") as file:
        file.write(b'[1]\n7\n{"process": 3}\n{"process": {"gpu_model": 7, "secret": "x"}}\n\xff\xfe\n{"proc')
    assert facts.read(TrialFolder(tmp_path)) == facts.Facts({"gpu_model": "7"}, {"steps": 7})


def test_a_file_that_cannot_be_written_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attempt = TrialFolder(tmp_path).new_attempt()
    (attempt.path / "facts.jsonl").mkdir()
    with facts.recording(attempt):
        pass
    assert "are not recorded" in capsys.readouterr().err
    assert facts.read(TrialFolder(tmp_path)) == facts.Facts()
