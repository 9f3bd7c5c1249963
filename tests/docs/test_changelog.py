"""The changelog: in its form, and of one mind with the package about which version this is."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import yaml
from reference import PUBLIC

import afa

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
HEADINGS = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
RELEASES = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in HEADINGS[1:]]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_what_is_unreleased_comes_first_and_versions_go_down_from_there() -> None:
    assert HEADINGS[0] == "[Unreleased]"
    numbers = [tuple(map(int, release.groups()[:3])) for release in RELEASES if release]
    dates = [date.fromisoformat(release[4]) for release in RELEASES if release]
    assert len(numbers) == len(HEADINGS) - 1
    assert numbers == sorted(set(numbers), reverse=True)
    assert dates == sorted(dates, reverse=True)
    assert set(re.findall(r"^### (.+)$", TEXT, re.MULTILINE)) <= KINDS


def test_the_newest_release_is_the_version_of_the_package_and_of_its_citation() -> None:
    newest = HEADINGS[1].partition("]")[0].removeprefix("[")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest == afa.__version__ == citation["version"]


def test_what_is_called_free_to_change_is_not_in_the_reference() -> None:
    (free,) = re.findall(r"may change with any version: (.+?),\s+names of rules", TEXT, re.DOTALL)
    rooms = re.findall(r"`(afa\.\w+)`", free)
    assert rooms == ["afa.engine", "afa.paper"]
    assert not [name for name in PUBLIC if name.startswith(tuple(rooms))]


def test_every_name_of_afa_that_the_changelog_mentions_is_there() -> None:
    rooms = {"engine", "experiments", "report", "formats", "plot", "model", "scores", "paper"}
    mentioned = set(re.findall(r"`afa\.(\w+)`", TEXT)) - rooms
    removed = set(re.findall(r"the public function `(\w+)`", TEXT))
    assert mentioned
    assert mentioned - set(afa.__all__) == removed
