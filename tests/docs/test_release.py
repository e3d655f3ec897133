"""The version and the date of a release, which three files name."""

import re

import yaml

import sweeps
from tests.command_lines import ROOT


def test_changelog_and_citation_name_the_version_and_its_date() -> None:
    released = re.search(r"^## \[(.*?)\] - (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert released and released.groups() == (citation["version"], str(citation["date-released"]))
    assert citation["version"] == sweeps.__version__
    page = (ROOT / "docs" / "help" / "cite.md").read_text()
    assert f"version = {{{released[1]}}},\n  date = {{{released[2]}}}" in page
