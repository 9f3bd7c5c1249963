"""The portfolio's file: what is read, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from afa.errors import ConfigError
from afa.paper.experiments.layer0_synthetic.portfolio import STORIES, BlobAndOutliers, load_portfolio, simulated_bundle

FILE = Path(__file__).parents[3] / "config" / "portfolio.yaml"
WRITTEN = yaml.safe_load(FILE.read_text(encoding="utf-8"))
HEAD = FILE.read_text(encoding="utf-8").partition("drug_C4:")[0]


def changed(config: str, entries: dict[str, Any]) -> dict[str, Any]:
    """The file with some keys of one configuration changed; a key that is None is left out."""
    merged = {key: value for key, value in {**WRITTEN[config], **entries}.items() if value is not None}
    return {**WRITTEN, config: merged}


def written(tmp_path: Path, document: Any) -> Path:
    file = tmp_path / "portfolio.yaml"
    file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return file


def test_every_number_of_the_file_reaches_its_configuration() -> None:
    for config in load_portfolio(FILE):
        read = {key: list(value) if isinstance(value, tuple) else value for key, value in config.model_dump().items()}
        assert read == {"name": config.name, **WRITTEN[config.name]}


def test_configurations_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    backwards = dict(reversed(WRITTEN.items()))
    assert [config.name for config in load_portfolio(written(tmp_path, backwards))] == list(backwards)


def test_the_file_has_every_story_and_its_head_every_key() -> None:
    assert {config.story for config in load_portfolio(FILE)} == set(STORIES)
    for key in {key for entry in WRITTEN.values() for key in entry}:
        assert f"#   {key} " in HEAD or key in ("letter", "story")
    assert "#   letter, story " in HEAD


@pytest.mark.parametrize(
    ("name", "entries", "words"),
    [
        ("drug_C4", {"spred": 1}, "portfolio.yaml, drug_C4, key spred: found an unknown key; .* rename it to spread"),
        ("drug_C4", {"name": "other"}, "drug_C4, key name: found a second name"),
        ("drug_C4", {"spread": None}, "drug_C4, key spread: found nothing"),
        ("drug_C4", {"story": "fairy"}, "key story: found 'fairy'; expected drug-family or pathway-enrich"),
        ("pathway_C4", {"shared": 3}, "pathway_C4, key shared: found an unknown key"),
        ("strain_C3", {"coupling": 0.1}, "strain_C3, key coupling: found an unknown key"),
        ("hier_C3", {"sizes": [5]}, "hier_C3, key sizes: .* at least 2 of them"),
        ("hier_C3", {"sizes": [5, 0]}, "hier_C3, key sizes.1"),
        ("hier_C3", {"loyalty": 1.5}, "hier_C3, key loyalty"),
        ("hier_C3", {"n_true": 16}, "key n_true: found 16; expected no more than the entities"),
        ("strain_C3", {"private": 61}, "key private: found 61; expected no more than the markers"),
        ("compositional", {"spread": 1.2}, "compositional, key spread"),
        ("adversarial_ibd", {"supports": [22, 18]}, "key supports: .* one number for each cluster"),
    ],
)
def test_a_wrong_entry_is_refused_with_file_configuration_and_key(
    tmp_path: Path, name: str, entries: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        load_portfolio(written(tmp_path, changed(name, entries)))


@pytest.mark.parametrize(("entry", "found"), [(None, "nothing"), ([1], "a list")])
def test_a_configuration_without_keys_is_refused(tmp_path: Path, entry: Any, found: str) -> None:
    with pytest.raises(ConfigError, match=f"drug_C4: found {found}"):
        load_portfolio(written(tmp_path, {"drug_C4": entry}))


def test_all_faults_are_shown_together(tmp_path: Path) -> None:
    both = changed("drug_C4", {"reach": 0}) | {"strain_C3": {**WRITTEN["strain_C3"], "effect": -1}}
    with pytest.raises(ConfigError) as raised:
        load_portfolio(written(tmp_path, both))
    assert [fault.where.rpartition(", ")[2] for fault in raised.value.faults] == ["key reach", "key effect"]


def test_a_reach_around_the_whole_ring_couples_every_pair_once() -> None:
    config = next(config for config in load_portfolio(FILE) if isinstance(config, BlobAndOutliers))
    wide = config.model_copy(update={"reach": 50})
    outlier = len(config.home) - 1
    assert len(simulated_bundle(wide).packed.of(outlier)[2]) == 25 * 24 / 2
