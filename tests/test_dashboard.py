"""The comparison that a study leaves in MLflow's web page, looked at in a real browser.

The view's format is not documented, so this is what holds it to the pinned MLflow.
"""

import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from sweeps import report
from sweeps.summary import Row, Summary
from sweeps.tracking import Tracker
from sweeps.trial_folder import MetricsLine, State, TrialFolder

TRIALS = [("adam", 0.001), ("adam", 0.01), ("sgd", 0.001), ("sgd", 0.01)]
EPOCHS = 8
NAMES = [f"optimizer={optimizer} lr={lr}" for optimizer, lr in TRIALS]
PATIENCE_MS = 60_000
BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI"):
        pytest.fail("there is no Chromium here to look at the dashboard with")
    pytest.skip("there is no Chromium here to look at the dashboard with")


def write_study(folder: Path) -> Tracker:
    """A grid of four trials, in sqlite in `folder`."""
    study = folder / "grid"
    tracker = Tracker(
        f"sqlite:///{folder}/mlflow.db", "sweepyard", "grid", study, ("val_accuracy",), ("maximize",)
    )
    tracker.open()
    rows = []
    for number, (optimizer, lr) in enumerate(TRIALS):
        row = Row(number, {"optimizer": optimizer, "lr": lr}, State.RUNNING, study / str(number))
        row.folder.mkdir()
        tracker.start_trial(row, [f"optimizer={optimizer}", f"lr={lr}"])
        best = 0.97 - 0.04 * number
        for epoch in range(EPOCHS):
            accuracy = best * (1 - math.exp(-(epoch + 1) / (1 + number / 2)))
            metrics = {"val_accuracy": accuracy, "val_loss": 1 - accuracy, "epoch_time": 0.5}
            TrialFolder(row.folder).append_metrics(MetricsLine(epoch, time.time() + epoch, metrics))
        row.state, row.objective, row.metrics = State.COMPLETED, [best], {"val_accuracy": best}
        tracker.end_trial(row)
        rows.append(row)
    summary = Summary("grid", study, ("val_accuracy",), ("maximize",), rows)
    report.write(summary)
    tracker.finish(summary)
    assert tracker.problem is None
    return tracker


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of `mlflow ui` with the study in it, and the path of the study's view."""
    chromium()
    folder = tmp_path_factory.mktemp("dashboard")
    tracker = write_study(folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    mlflow, *command, usual_port = str(tracker.command()).split()
    assert (Path(mlflow).name, command[0], usual_port) == ("mlflow", "ui", "5000")
    environment = {
        **os.environ,
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }
    with (folder / "ui.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", *command, port, "--workers", "1"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}", tracker.link()
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()


def wait_until_it_answers(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{url} did not answer within a minute")


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1900, "height": 1700})
        page.set_default_timeout(PATIENCE_MS)
        expect.set_options(timeout=PATIENCE_MS)
        yield page
        browser.close()


def test_the_link_opens_the_comparison(dashboard: tuple[str, str], page: Page) -> None:
    address, link = dashboard
    page.goto(address + link)
    expect(page.get_by_text("4 matching runs")).to_be_visible()
    expect(run_names(page)).to_have_text(NAMES)  # the trials alone, the best first
    for axis in ("optimizer", "lr", "best/val_accuracy"):
        expect(
            chart(page, "Parallel Coordinates").locator(".parcoords").get_by_text(axis, exact=True)
        ).to_be_visible()
    for metric in ("val_accuracy", "val_loss"):
        expect(chart(page, metric).locator(".scatterlayer .points path")).to_have_count(len(TRIALS) * EPOCHS)


def test_its_list_has_the_swept_parameters_and_the_objective(dashboard: tuple[str, str], page: Page) -> None:
    address, link = dashboard
    page.goto(address + link.replace("compareRunsMode=CHART", "compareRunsMode=TABLE"))
    expect(run_names(page)).to_have_text(NAMES)
    for column in ("optimizer", "lr", "best/val_accuracy"):
        expect(page.locator(".ag-header").get_by_text(column, exact=True)).to_be_visible()


def test_the_experiment_has_the_study_with_its_trials(dashboard: tuple[str, str], page: Page) -> None:
    address, link = dashboard
    page.goto(address + link.partition("?")[0])
    expect(page.get_by_text("5 matching runs")).to_be_visible()
    expect(run_names(page)).to_have_text(["grid"])
    page.locator(".ag-pinned-left-cols-container button").click()
    expect(run_names(page)).to_have_text(["grid", *reversed(NAMES)])  # the newest first
    run_names(page).first.click()
    expect(page.get_by_text("Best: trial 0")).to_be_visible()
    for name in NAMES:
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def run_names(page: Page) -> Locator:
    return page.locator(".ag-pinned-left-cols-container a")


def chart(page: Page, title: str) -> Locator:
    return page.locator(".react-resizable", has=page.get_by_role("heading", name=title, exact=True))
