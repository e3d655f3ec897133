"""Who is told that a study has ended: a real command, a real server, and nobody who should not know the address."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sweeps.base.errors import UserError
from sweeps.study.run import notify
from sweeps.trial.job import Outcome, State
from tests.command_lines import some
from tests.study.fake_launcher import Clock, FakeLauncher, by_trial, ends, trains
from tests.study.test_driver import Run, drivers, run  # noqa: F401 - fixtures


class Hook(BaseHTTPRequestHandler):
    """A webhook: keeps what it is told, and answers with the number in its path."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append((self.path, self.headers["Content-Type"], body))  # type: ignore[attr-defined]
        self.send_response(int(self.path.rpartition("/")[2]))
        self.send_header("Location", "/elsewhere/200")
        self.end_headers()

    do_GET = do_POST  # noqa: N815 - the names of http.server

    def log_message(self, *_: object) -> None:
        pass


class HookServer(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.told: list[tuple[str, str, bytes]] = []

    def address(self, code: int) -> str:
        return f"http://127.0.0.1:{self.server_port}/sesame/{code}"


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with HookServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def script(tmp_path: Path) -> str:
    """Make a command that stores its words and its input."""
    file = tmp_path / "tell me"
    file.write_text('#!/bin/sh\nprintf "%s\\n" "$@" >> told; cat >> told; echo >> told\n')
    file.chmod(0o700)
    return str(file)


def test_notify_command_receives_the_end_of_a_study(
    run: Run,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
    script: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    how = f'hydra.sweeper.notify=["{script}",-s,"{{subject}}","$HOME; rm x"]'
    error = "KeyError: 'x' of postgresql://me:sesame@host/db"
    launcher = FakeLauncher(by_trial(trains(), t1=ends(Outcome(State.FAILED, error))), clock)
    run(launcher, how)
    assert "me:***@host/db" in (tmp_path / "told").read_text()
    words = (tmp_path / "told").read_text().partition("KeyError")[0].splitlines()
    assert words[:3] == ["-s", "study s is finished", "$HOME; rm x"]
    assert words[3:] == ["3 trials: 2 completed, 1 failed", "best: trial 0 (x=1): objective=100", "trial 1 failed: "]
    assert f"in {tmp_path}/multirun/s on " in (tmp_path / "told").read_text()
    (tmp_path / "told").unlink()
    run(launcher, how)  # which finds nothing to do
    assert not (tmp_path / "told").exists()
    assert "hydra.sweeper.notify:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "happens", "raised", "subject"),
    [
        (["hydra.sweeper.target=1000"], None, None, "study s is done: trial 0 reached target=1000 with objective=100."),
        ([], signal.SIGINT, None, "study s is not finished: it was interrupted (SIGINT)."),
        ([], OSError(28, "No space left on device", "x.json"), UserError, "study s had to stop: [Errno 28] No space"),
        ([], ZeroDivisionError("a bug"), ZeroDivisionError, "study s had to stop: a bug"),
    ],
    ids=str,
)
def test_stop_is_notified(
    run: Run,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
    script: str,
    settings: list[str],
    happens: Exception | signal.Signals | None,
    raised: type[BaseException] | None,
    subject: str,
) -> None:
    launcher = FakeLauncher(trains(9), clock, slots=1)

    def on_poll() -> None:
        if launcher.polls == 3 and isinstance(happens, signal.Signals):
            os.kill(os.getpid(), happens)
        elif launcher.polls == 3 and happens:
            raise happens

    launcher.on_poll = on_poll
    line = ['hydra.sweeper.notify=["' + script + '","{subject}"]', *settings]
    if raised is None:
        run(launcher, *line)
    else:
        with pytest.raises(raised):
            run(launcher, *line)
    assert (tmp_path / "told").read_text().startswith(subject)
    assert (tmp_path / "told").read_text().count("study s ") == 1


@some("code", [200, 404, 500, 302], 2)
def test_webhook_is_called_and_its_address_is_in_no_file(
    run: Run,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
    hook: HookServer,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("WEBHOOK", hook.address(code))
    run(FakeLauncher(trains(), clock), "hydra.sweeper.notify=${oc.env:WEBHOOK}")
    ((path, kind, body),) = hook.told
    assert (path, kind) == (f"/sesame/{code}", "application/json")
    assert json.loads(body)["text"].startswith("study s is finished\n3 trials: 3 completed\nbest: trial 0")
    out, err = capfd.readouterr()
    messages = [line for line in out.splitlines() if "hydra.sweeper.notify:" in line]
    assert len(messages) == (code != 200)
    assert code == 200 or f"the webhook at 127.0.0.1 answered {code}" in messages[0]
    assert "sesame" not in out + err
    assert not any(b"sesame" in file.read_bytes() for file in (tmp_path / "multirun").rglob("*") if file.is_file())


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ("http://127.0.0.1:1/sesame", "the webhook at 127.0.0.1 does not answer: [Errno 111] Connection refused"),
        ("http://127.0.0.1:1/se same", "the webhook at 127.0.0.1 does not answer: InvalidURL"),
        (["sh", "-c", "echo a >&2; echo b >&2; exit 3"], "sh ended with exit code 3: b"),
        (["sleep", "600"], "sleep was ended after 0.2 s"),
        (["/no/such"], "/no/such cannot be run: No such file or directory"),
        (["true"], ""),
        (["echo", "{subject}\0"], "echo cannot be run: embedded null byte"),
    ],
)
def test_error_is_printed_in_one_line(how: str | list[object], wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_COMMAND_S", 0.2 if "sleep" in how else 10.0)
    message = notify.send(how, "study s is finished", "a text \ud800")
    assert message == (f"hydra.sweeper.notify: {wrong}" if wrong else "")


@pytest.mark.parametrize(
    ("typed", "match"),
    [
        ("https://hooks.example.org/sesame", "WEBHOOK"),
        ('"${oc.env:NONE,https://hooks.example.org/sesame}"', "WEBHOOK"),
        ("[curl,-d,x,https://hooks.example.org/sesame]", "WEBHOOK"),
        ("${oc.env:NO_SUCH}", "hydra.sweeper.notify: Environment variable 'NO_SUCH' not found"),
        ("${oc.env:ODD}", "oc.env:ODD}: not a usable address"),
        ("${oc.env:OTHER}", "oc.env:OTHER}: neither an address of a webhook"),
        ("mail", "neither an address of a webhook .* nor a list of words.\nUse a command, "),
        ("[]", "not a list of words"),
        ("[[mail]]", "not a list of words"),
        ("{a:mail}", "not a list of words"),
        ("[mial,me]", "the command mial does not exist here"),
    ],
)
def test_a_mistake_is_refused_before_anything_starts(
    run: Run,  # noqa: F811
    clock: Clock,
    tmp_path: Path,
    typed: str,
    match: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ODD", "https://me:sesame@hooks.example.org/x")
    monkeypatch.setenv("OTHER", "ftp://sesame")
    launcher = FakeLauncher(trains(), clock)
    with pytest.raises(UserError, match=match) as caught:
        run(launcher, f"hydra.sweeper.notify={typed}")
    assert "sesame" not in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 2
    assert (launcher.submitted, (tmp_path / "multirun").exists()) == ([], False)
