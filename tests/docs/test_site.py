"""The documentation as a site: built strictly, complete without a network, and searched."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from playwright.sync_api import expect, sync_playwright

import sweeps
from sweeps.__main__ import app
from sweeps.hydra.settings import LocalLauncherConf, SlurmLauncherConf, SweeperConf
from sweeps.study.plan.help import descriptions
from tests.command_lines import ROOT
from tests.tracking.test_dashboard import BROWSER_ARGUMENTS, chromium

pytestmark = pytest.mark.long
FOUND = {
    "hyperband": "how_to/stop_early",
    "walltime": "how_to/slurm",
    "in parallel": "how_to/parallel",
    "hyperparameter tuning": "help/questions",
    "install": "index",
    "out of memory": "how_to/largest_batch",
    "cite": "help/cite",
}
"""What a reader types into the search, and the page that must be among the results."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site. A broken link, a missing anchor or a page outside of the navigation is an error."""
    folder = tmp_path_factory.mktemp("site")
    quiet = {"NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_loads_from_another_site(site: Path) -> None:
    pages = [*site.rglob("*.html")]
    loaded = [
        match for page in pages for match in re.findall(r'<(?:script|link|img)[^>]*"(https?:[^"]+)', page.read_text())
    ]
    assert len(pages) > 20 and not loaded


def test_page_has_the_version_and_its_neighbours(site: Path) -> None:
    page = (site / "docs" / "how_to" / "budgets.html").read_text()
    assert f"sweepyard {sweeps.__version__}" in page
    assert 'rel="next"' in page and 'rel="prev"' in page


def test_reference_has_every_setting_and_its_meaning(site: Path) -> None:
    page = (site / "docs" / "reference" / "settings.html").read_text()
    for kind in (SweeperConf, LocalLauncherConf, SlurmLauncherConf):
        assert all(f"<code>{name}</code>" in page for name in descriptions(kind))


def test_reference_has_every_command_and_option(site: Path) -> None:
    page = (site / "docs" / "reference" / "commands.html").read_text()
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f'<h2 id="{name}">' in page
        options = [option for param in command.params if param.param_type_name == "option" for option in param.opts]
        assert all(f"<code>{option}</code>" in page for option in options)


def test_every_picture_has_a_text(site: Path) -> None:
    pictures = [tag for page in site.rglob("*.html") for tag in re.findall(r"<img [^>]*>", page.read_text())]
    assert pictures and all(re.search(r'alt="[^"]+', tag) for tag in pictures)


def test_search_needs_no_server(site: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
        page = browser.new_page()
        for words, name in FOUND.items():
            page.goto((site / "docs" / "help" / "symptoms.html").as_uri())
            # The search listens for keys, which `fill` does not press.
            page.get_by_placeholder("Search").press_sequentially(words)
            expect(page.locator(f".md-search-result__item > a[href*='{name}.html']").first).to_be_attached()
        browser.close()
