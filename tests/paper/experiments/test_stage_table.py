"""The declarations of the stages: read without numerical packages, and true to the modules."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest

from afa.errors import ConfigError, SanityError
from afa.evaluate.summary import TABLES
from afa.paper.experiments.base import check_rows, check_tables, chosen, columns_of
from afa.paper.experiments.declared import STAGES, left_out
from afa.paper.experiments.settings import StageSettings

NAMES = sorted(STAGES)
ROOT = Path(__file__).parents[3]


def heads(keys: tuple[str, ...]) -> set[str]:
    return {key.partition(".")[0] for key in keys}


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_takes_what_its_description_says(name: str) -> None:
    stage, module = STAGES[name], import_module(f"afa.paper.experiments.{name}")
    optional = {"threads", *({"patients"} if stage.sharded else ())}
    takes = set(inspect.signature(module.run).parameters)
    assert takes - optional == {*stage.inputs, *heads(stage.settings)}
    assert stage.sharded == ("patients" in takes)
    assert heads((*stage.settings, *(stage.summary_settings or ()))) <= set(StageSettings.model_fields)
    if stage.summary_settings is not None:
        summarised = set(inspect.signature(module.summarise).parameters)
        assert summarised == {"tables", *stage.summary_inputs, *heads(stage.summary_settings)}


def test_a_stage_of_a_closure_reads_which_couplings_are_of_both_classes() -> None:
    closed = {name for name, stage in STAGES.items() if "closure" in stage.settings}
    assert closed == {"binary", "calibration", "stopping", "voters"}
    own_bundles = {"voters"}  # it builds the bundle of each voter, with what is common to both classes
    expected = closed - own_bundles | {"labels", "labels_needed"}
    assert {name for name, stage in STAGES.items() if stage.scopes} >= expected


def test_every_module_with_run_is_declared_and_the_other_way_round() -> None:
    folder = ROOT / "afa/paper/experiments"
    sources = [path / "__init__.py" if path.is_dir() else path for path in folder.iterdir()]
    written = {path.parent.stem if path.stem == "__init__" else path.stem for path in sources if _makes_tables(path)}
    assert written == set(STAGES)


def _makes_tables(path: Path) -> bool:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return "\ndef run(" in text or "import run as run" in text


def test_what_a_bundle_or_cohort_lacks_leaves_out_the_stages_that_need_it_and_those_that_read_them() -> None:
    assert left_out(2, labelled=True, elicited=True) == {}
    alone = left_out(1, labelled=True, elicited=True)
    assert {"sign", "allocation", "stopping"} <= set(alone)
    assert not {"binary", "labels", "calibration"} & set(alone)
    assert left_out(2, labelled=False, elicited=True) == {"labels": "no labels", "labels_needed": "no labels"}


@pytest.mark.parametrize("name", [name for name, stage in STAGES.items() if stage.figure])
def test_a_figure_of_a_stage_has_its_notebook(name: str) -> None:
    assert (ROOT / "notebooks" / f"{name}.ipynb").is_file()
    described = f'"{name}": ('
    assert described not in (ROOT / "workflow" / "rules" / "report.smk").read_text(encoding="utf-8"), "named twice"


def test_every_table_of_the_summary_is_asked_by_one_stage() -> None:
    asked = [name for stage in STAGES.values() for name, question in stage.summary_tables.items() if question]
    made = {name for stage in STAGES.values() for name in stage.summary_tables}
    assert len(asked) == len(set(asked))
    assert set(asked) == made
    page = (ROOT / "docs" / "summary.md").read_text(encoding="utf-8")
    assert [name for name in made if f"\n| `{name}` | " not in page] == [], "run `make schema`"
    assert set(TABLES) - made == {"llm_baselines", "llm_choosing"}
    assert all(bool(stage.summary_tables) == (stage.summary_settings is not None) for stage in STAGES.values())


def test_rows_of_a_table_that_a_stage_does_not_name_are_refused() -> None:
    check_rows("toy", pd.DataFrame({"table": ["made"]}), ("made",))
    with pytest.raises(SanityError, match="found rows of other; expected made"):
        check_rows("toy", pd.DataFrame({"table": ["other"]}), ("made",))


def test_the_table_is_read_without_numerics() -> None:
    heavy = "{'numpy', 'pandas', 'scipy', 'numba', 'pyarrow'} & set(sys.modules)"
    code = f"import sys, afa.paper.config, afa.paper.experiments.declared; print({heavy})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_job_reads_the_keys_that_are_named_and_no_other() -> None:
    found = chosen(
        ("random_order.seeds", "top_k", "closure"), StageSettings, {"random_order": {"seeds": [4]}, "top_k": 2}
    )
    assert found["random_order"].seeds == (4,)
    assert found["top_k"] == 2
    assert found["closure"].coupling == "differential"
    with pytest.raises(AttributeError):
        _ = found["random_order"].starts


def test_wrong_settings_of_a_job_are_refused_all_at_once() -> None:
    with pytest.raises(ConfigError) as stopped:
        chosen(("top_k", "closure"), StageSettings, {"top_k": 0, "closure": {"coupling": "none"}, "gauge": {}})
    assert {fault.where for fault in stopped.value.faults} == {
        f"the settings, key {key}" for key in ("top_k", "closure.coupling", "gauge")
    }


GOOD = pd.DataFrame({"patient": ["p"], "t": [1], "right": [0.5], "winner": [-1], "probability": [1.0]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"t": "one"}, "column t: found str"),
        ({"right": -0.5}, "column right: found -0.5; expected at least 0"),
        ({"winner": 2}, "column winner: found 2; expected at most 1"),
        ({"probability": 1.5}, "column probability: found 1.5; expected at most 1"),
        ({"more": 1}, "found columns patient, t, right, winner, probability, more"),
    ],
)
def test_a_table_that_is_not_as_described_is_refused(change: dict[str, object], words: str) -> None:
    described = columns_of("toy", {"made": "patient t right winner probability"})
    check_tables("toy", {"made": GOOD}, described)
    check_tables("toy", {"made": GOOD.assign(probability=None)}, described)
    with pytest.raises(SanityError, match=words):
        check_tables("toy", {"made": GOOD.assign(**change)}, described)
    with pytest.raises(SanityError, match="found tables other; expected made"):
        check_tables("toy", {"other": GOOD}, described)


def test_every_column_of_every_stage_has_a_meaning() -> None:
    for name, stage in STAGES.items():
        for table, columns in columns_of(name, stage.tables).items():
            assert all(meaning for _, meaning in columns.values()), (name, table)
