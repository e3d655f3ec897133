"""The comparison of a study in MLflow's web page, in a real browser.

These tests fix the view's undocumented format to the pinned MLflow.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from sweeps.show.page import report
from sweeps.show.page.studies import compare
from sweeps.tracking import comparison_view
from sweeps.tracking.pages import studies_path
from sweeps.tracking.tracker import Tracker
from tests.command_lines import GRID, SWEEP, THEIRS, run
from tests.show import pages
from tests.tracking.studies import free_port

ROOT = Path(__file__).parents[2]
EPOCHS = 5
STARTED = [f"optimizer={optimizer} lr={lr}" for optimizer in ("adam", "sgd") for lr in (0.001, 0.01)]
BEST_FIRST = [STARTED[1], STARTED[0], STARTED[3], STARTED[2]]
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


pytestmark = pytest.mark.long  # a server, and whole studies


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    if os.environ.get("CI"):
        pytest.fail("there is no Chromium here to look at the dashboard with")
    pytest.skip("there is no Chromium here to look at the dashboard with")


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Iterator[tuple[str, str]]:
    """Yield the address of the server that the end of README's grid names, and the path of the study's view."""
    chromium()
    folder = tmp_path_factory.mktemp("dashboard")
    shutil.copy(migrated, folder / "mlflow.db")
    grid = ["-m", "optimizer=adam,sgd", "lr=0.001,0.01", "hydra.sweeper.study_name=grid"]
    swept = run([SWEEP, *grid], folder)
    apart = ["hydra.sweeper.study_name=failing", "hydra.sweeper.experiment=failing"]
    failing = run([THEIRS, "-m", *GRID, "+how=raises,exits", *apart], folder)
    assert failing.code == 1, failing.said
    assert swept.out.splitlines()[-1] == "dashboard: sweepyard ui grid"
    store, studies = f"sqlite:///{folder}/mlflow.db", {}
    for name, experiment in (("search", "search"), ("two_objectives", "two_objectives"), ("grid", "search")):
        (folder / "made").mkdir(exist_ok=True)
        summary = studies[name] = pages.STUDIES[name](folder / "made" / name)
        report.write(summary)
        tracker = Tracker(store, experiment, summary, "sweep.py")
        tracker.open()
        tracker.catch_up(summary)
        assert tracker.problem is None
    view = studies_path(store, compare({name: studies[name] for name in ("search", "grid")}))
    assert view == comparison_view.path("3", "search, grid")
    port = str(free_port())
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "ui.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "sweeps", "ui", "grid", "--port", port],
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}/health")
        output = (folder / "ui.log").read_text()
        assert output == f"http://127.0.0.1:{port}/grid   (stop with Ctrl-C)\n"
        yield f"http://127.0.0.1:{port}", comparison_view.path("1", "grid")
    finally:
        server.send_signal(signal.SIGINT)
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
        expect.set_options(timeout=PATIENCE_MS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def window(browser: Browser) -> Iterator[BrowserContext]:
    """Yield a browser context with a common cache, because MLflow's pages have megabytes of JavaScript."""
    window = browser.new_context(viewport={"width": 1900, "height": 1700})
    yield window
    window.close()


@pytest.fixture
def page(window: BrowserContext) -> Iterator[Page]:
    page = window.new_page()
    page.set_default_timeout(PATIENCE_MS)
    yield page
    page.close()


def test_the_link_opens_the_comparison(dashboard: tuple[str, str], page: Page) -> None:
    page.goto(f"{dashboard[0]}/grid")  # `ui` prints this address
    expect(page.get_by_text("4 matching runs")).to_be_visible()
    expect(run_names(page)).to_have_text(BEST_FIRST)  # the trials alone, the best first
    for axis in ("optimizer", "lr", "best/val_accuracy"):
        expect(chart(page, "Parallel Coordinates").locator(".parcoords").get_by_text(axis, exact=True)).to_be_visible()
    for metric in ("val_accuracy", "val_loss"):
        expect(chart(page, metric).locator(".scatterlayer .points path")).to_have_count(len(STARTED) * EPOCHS)
    expect(page.get_by_text("Trials", exact=True)).to_be_attached()  # the section with all trials side by side
    expect(page.get_by_role("button", name="New Chat")).to_have_count(0)  # the assistant


def test_view_of_a_search_has_pruned_trials_and_contours(dashboard: tuple[str, str], page: Page) -> None:
    page.goto(dashboard[0] + comparison_view.path("3", "search"))
    expect(page.get_by_text("20 matching runs")).to_be_visible()
    for axis in ("log10 lr", "batch_size", "optimizer", "best/accuracy"):
        expect(chart(page, "Parallel Coordinates").locator(".parcoords").get_by_text(axis, exact=True)).to_be_visible()
    page.locator(".react-resizable .contourlayer").scroll_into_view_if_needed()
    page.goto(dashboard[0] + comparison_view.path("3", "search", as_table=True))
    states = page.locator(".ag-center-cols-container [col-id='tags.`state`']")
    expect(states.filter(has_text="pruned")).to_have_count(9)
    expect(states.filter(has_text="failed")).to_have_count(2)


def test_view_of_two_studies_has_the_trials_of_both(dashboard: tuple[str, str], page: Page) -> None:
    page.goto(dashboard[0] + comparison_view.path("3", "search, grid"))
    expect(page.get_by_text("32 matching runs")).to_be_visible()
    for axis in ("lr", "batch_size", "best/accuracy"):
        expect(chart(page, "Parallel Coordinates").locator(".parcoords").get_by_text(axis, exact=True)).to_be_visible()
    page.goto(dashboard[0] + comparison_view.path("3", "search, grid", as_table=True))
    expect(page.locator(".ag-header").get_by_text("study", exact=True)).to_be_visible()


@pytest.mark.long
def test_two_objectives_are_axes_and_columns(dashboard: tuple[str, str], page: Page) -> None:
    page.goto(dashboard[0] + comparison_view.path("4", "two"))
    expect(page.get_by_text("12 matching runs")).to_be_visible()
    for axis in ("lr", "best/accuracy", "best/seconds"):
        expect(chart(page, "Parallel Coordinates").locator(".parcoords").get_by_text(axis, exact=True)).to_be_visible()
    page.goto(dashboard[0] + comparison_view.path("4", "two", as_table=True))
    for column in ("best/accuracy", "best/seconds"):
        expect(page.locator(".ag-header").get_by_text(column, exact=True)).to_be_visible()


def test_its_list_has_the_swept_parameters_and_the_objective(dashboard: tuple[str, str], page: Page) -> None:
    address, link = dashboard
    page.goto(address + link.replace("compareRunsMode=CHART", "compareRunsMode=TABLE"))
    expect(run_names(page)).to_have_text(BEST_FIRST)
    for column in ("state", "best/val_accuracy", "optimizer", "lr"):
        expect(page.locator(".ag-header").get_by_text(column, exact=True)).to_be_visible()


def test_the_experiment_has_the_study_with_its_trials(dashboard: tuple[str, str], page: Page) -> None:
    address, link = dashboard
    page.goto(address + link.partition("?")[0])
    expect(page.get_by_text("5 matching runs")).to_be_visible()
    expect(run_names(page)).to_have_text(["grid"])
    page.locator(".ag-pinned-left-cols-container button").click()
    expect(run_names(page)).to_have_text(["grid", *reversed(STARTED)])  # the newest first
    run_names(page).first.click()
    expect(page.get_by_text("Best: trial 1")).to_be_visible()
    picture = page.locator("img[src*='study.svg']")
    expect(picture).to_be_visible()
    assert picture.evaluate("async (shown) => { await shown.decode(); return shown.naturalWidth }") > 500
    for name in STARTED:
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()


def test_a_study_whose_trials_all_failed_shows_why(dashboard: tuple[str, str], page: Page) -> None:
    page.goto(dashboard[0] + comparison_view.path("2", "failing", as_table=True))
    expect(page.get_by_role("gridcell", name="RuntimeError: too large")).to_be_visible()
    expect(page.get_by_role("gridcell", name="it called sys.exit(3)")).to_be_visible()
    run_names(page).filter(has_text="how=raises").click()
    expect(page.get_by_text("failed: RuntimeError: too large")).to_be_visible()  # the run's description
    expect(page.get_by_text("Traceback (most recent call last)")).to_be_attached()  # the tail of the trial's log


def run_names(page: Page) -> Locator:
    return page.locator(".ag-pinned-left-cols-container a")


def chart(page: Page, title: str) -> Locator:
    return page.locator(".react-resizable", has=page.get_by_role("heading", name=title, exact=True))
