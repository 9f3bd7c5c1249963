"""The configuration: its file, its model and its page say the same, and a wrong key is never passed over."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import pandas as pd
import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from afa.cohort.config import CohortConfig, load_cohort_config
from afa.errors import ConfigError
from afa.evaluate.figures import RULE_STYLE
from afa.io.yamlfile import read_mapping
from afa.paper.config import RunConfig, check_run_config, cohort_file, own_rule_files
from afa.paper.experiments.settings import Layer1, Sanity

ROOT = Path(__file__).parents[2]
FILE = ROOT / "config" / "config.yaml"
PAGE = ROOT / "config" / "README.md"
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.yaml"
TOOL = runpy.run_path(str(ROOT / "tools" / "pages.py"))

# Of the paper's hyperparameters; every other key is ours.
FROM_PAPER = {"inference.damping": "eta", "inference.tolerance": "epsilon", "inference.max_iterations": "T_max"}
NOT_YET_A_SETTING = {"gamma", "K", "T_re", "C_min", "T_budget"}


def leaves(document: dict[str, Any], before: str = "") -> Iterator[str]:
    """Dotted keys of everything in nested mappings that is not itself a mapping."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}"


def nested(key: str, value: Any) -> dict[str, Any]:
    """`a.b`, v -> {a: {b: v}}."""
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def keys_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Dotted keys of a model and of the models in its fields; `*` stands for the free keys of a mapping to models."""
    for name, field in model.model_fields.items():
        yield f"{before}{name}"
        free = "*." if get_origin(field.annotation) is dict else ""
        for candidate in (field.annotation, *get_args(field.annotation)):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                yield from keys_of(candidate, f"{before}{name}.{free}")


def fault_of(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as raised:
        check_run_config(document)
    assert len(raised.value.faults) == 1
    return str(raised.value)


ALL_KEYS = sorted(leaves(RunConfig().model_dump()))


def test_the_file_holds_exactly_the_defaults_of_the_model() -> None:
    assert check_run_config(read_mapping(FILE)) == RunConfig()


def test_the_file_names_every_key_of_the_model() -> None:
    assert sorted(leaves(read_mapping(FILE))) == ALL_KEYS


def test_every_key_of_the_configuration_and_of_a_cohort_file_is_documented() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in (*ALL_KEYS, *keys_of(CohortConfig)) if f"`{key}`" not in page] == []


def without_words(part: Any) -> Any:
    """A schema without its descriptions."""
    if not isinstance(part, dict):
        return part
    return {name: without_words(value) for name, value in part.items() if name != "description"}


def test_the_schema_has_the_kinds_ranges_and_defaults_of_the_model() -> None:
    made = TOOL["config_schema"]()
    assert without_words(read_mapping(SCHEMA)) == without_words(made), "run `make schema`"


@pytest.mark.slow  # words alone stop no change: `make nightly` asks for them
def test_the_pages_that_are_made_have_the_words_of_the_models_and_stages() -> None:
    for file, made in TOOL["written"]().items():
        assert file.read_text(encoding="utf-8") == made, f"{file.name}: run `make schema`"


def test_the_schema_takes_the_file_and_refuses_what_the_model_refuses() -> None:
    schema = read_mapping(SCHEMA)
    Draft202012Validator.check_schema(schema)
    check = Draft202012Validator(schema)
    assert list(check.iter_errors(read_mapping(FILE))) == []
    for wrong in (
        {"colour": "blue"},
        {"inference": {"damping": 1.5}},
        {"shards": "many"},
        {"labels": {"seeds": [0, 0]}},
    ):
        assert list(check.iter_errors(wrong)), wrong


@pytest.mark.parametrize("key", ["shards", "encoding.level", "allocation.gains"])
def test_a_misspelt_key_is_refused_with_the_key_that_was_meant(key: str) -> None:
    parts = key.split(".")
    misspelt = ".".join([*parts[:-1], parts[-1] + "s"])
    message = fault_of(nested(misspelt, 1))
    assert f"key {misspelt}: found an unknown key" in message
    assert f"rename it to {parts[-1]}." in message


def test_a_key_like_no_other_is_refused_with_the_keys_that_there_are() -> None:
    message = fault_of({"inference": {"colour": "blue"}})
    assert "known keys: damping, max_iterations, tolerance" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cohort", [7]),
        ("cohort", "../elsewhere"),
        ("run", "a/b"),
        ("run", ["a"]),
        ("shards", 0),
        ("shards", "many"),
        ("shards", 2.5),
        ("bundle", 3),
        ("elicitation.min_agree", 0),
        ("elicitation.live", "often"),
        ("elicitation.calls", -1),
        ("elicitation.money", "much"),
        ("elicitation.at_once", 0),
        ("encoding.test", "exact"),
        ("encoding.level", 0),
        ("encoding.level", 1),
        ("inference.damping", 0),
        ("inference.damping", 1.5),
        ("inference.tolerance", "small"),
        ("inference.max_iterations", 0),
        ("random_order.starts", "cold"),
        ("inference", 3),
        ("random_order.seeds", []),
        ("random_order.seeds", 3),
        ("random_order.seeds", [1, "one"]),
        ("top_k", 0),
        ("allocation.rules", ["greedier"]),
        ("allocation.gains", ["cmi", "ig"]),
        ("stopping.rules", ["fastest"]),
        ("stopping.probabilities", []),
        ("stopping.seed", -1),
        ("encoding.reference", "patients"),
        ("encoding.threshold", -0.1),
        ("closure.coupling", "both"),
        ("closure.strength", 1),
        ("closure.strength", 0),
        ("labels.percents", [5, 0]),
        ("labels.percents", [5, 100]),
        ("labels.thresholds", []),
        ("labels.strengths", [0.5, 1.0]),
        ("labels.permutations", 0),
        ("accurate.rounds", [10, 0]),
        ("accurate.limit", -1),
        ("labels_needed.sizes", [10, 1]),
        ("labels_needed.sizes", []),
        ("labels_needed.repeats", 0),
        ("labels_needed.permuted", -1),
        ("labels_needed.of_each_class", 0),
        ("allocation.schedules", []),
        ("baselines.turns", "some"),
        ("baselines.methods", ["mrf_llm", "gpt"]),
        ("baselines.patients", 0),
        ("bootstrap.resamples", 99),
        ("bootstrap.confidence", 1),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_is_refused_by_its_key(key: str, value: Any) -> None:
    assert f"the configuration, key {key}" in fault_of(nested(key, value))


def test_the_baselines_are_off_unless_there_is_a_record_or_a_live_model() -> None:
    assert check_run_config({}).baselines.folder is None
    assert check_run_config({"baselines": {"record": "answers"}}).baselines.folder == Path("answers")
    live = check_run_config({"baselines": {"live": True, "calls": 9}}).baselines
    assert live.folder == Path("data/llm_baselines")
    assert live.terms == "--calls 9 --prompt-price 0.0 --answer-price 0.0 --at-once 4"


def test_every_fault_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as raised:
        check_run_config({"shards": 0, "colour": "blue", "inference": {"damping": 2}})
    assert len(raised.value.faults) == 3


def test_an_empty_value_means_the_default() -> None:
    assert check_run_config({"run": "", "bundle": "", "shards": 2}) == RunConfig(shards=2)


def test_a_run_is_named_by_its_cohort_unless_it_has_a_name() -> None:
    assert RunConfig(cohort="x").run_name == "x"
    assert RunConfig(cohort="x", run="y").run_name == "y"


def test_the_rules_of_the_default_grid_are_those_that_the_report_knows() -> None:
    assert RunConfig().allocation.rules == tuple(RULE_STYLE)


def test_without_live_no_stage_has_a_term_of_asking() -> None:
    assert check_run_config({"elicitation": {"calls": 10, "money": 5}}).elicitation.terms == ""


def test_the_terms_of_a_live_run_are_its_caps_and_prices_as_options() -> None:
    settings = check_run_config({"elicitation": {"live": True, "calls": 10, "money": 2.5, "prompt_price": 1}})
    expected = "--calls 10 --money 2.5 --prompt-price 1.0 --answer-price 0.0 --at-once 4"
    assert settings.elicitation.terms == expected


def test_a_rule_of_ones_own_is_named_by_module_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_alone.py").write_text("class Rule: ...")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = check_run_config({"allocation": {"rules": ["random", "mine_alone:Rule"]}})
    assert own_rule_files(settings) == [tmp_path / "mine_alone.py"]
    missing = check_run_config({"allocation": {"rules": ["not_there_at_all:Rule"]}})
    with pytest.raises(
        ConfigError, match=r"key allocation.rules: found not_there_at_all:Rule; expected a Python module"
    ):
        own_rule_files(missing)


def test_an_unknown_cohort_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match=r"found 'nosuch'; expected one of demo, gse109142.*afa cohort new nosuch"):
        cohort_file(RunConfig(cohort="nosuch"), ROOT / "config" / "cohorts")


@pytest.mark.parametrize("file", sorted((ROOT / "config" / "cohorts").glob("*.yaml")), ids=lambda file: file.stem)
def test_each_cohort_file_is_valid_and_named_as_its_cohort(file: Path) -> None:
    assert load_cohort_config(file).name == file.stem


def test_the_settings_of_the_paper_are_the_defaults() -> None:
    table = pd.read_csv(ROOT / "resources" / "paper" / "hyperparams.csv", dtype=str)
    printed = table[table["column"] == "Value"].set_index("row")["value"]
    for key, symbol in FROM_PAPER.items():
        section, name = key.split(".")
        assert getattr(getattr(RunConfig(), section), name) == float(printed[symbol])
    assert set(printed.index) - set(FROM_PAPER.values()) == NOT_YET_A_SETTING


def test_one_random_order_is_the_default_of_layer_1_and_of_the_acceptance_tests():
    assert Layer1().seeds == Sanity().seeds == (0,)
