"""The contract of reruns covers all there is and holds for a change of each kind.

test_reruns_of_all.py tries every setting, file and module.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

import pytest
from code_changes import other_words
from code_reach import functions_of, graph, modules_and_names, notebooks_of
from rerun_contract import DEFAULT_RUN, keys_of, load_contract
from rerun_lab import ROOT, Lab
from rerun_trials import Trials

from afa.paper import codedigest
from afa.paper.codedigest import NUMERICS, Code, versions
from afa.paper.config import RunConfig

CONTRACT = load_contract()
FILE = "tests/workflow/reruns.yaml"


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    lab = Lab(tmp_path_factory.mktemp("project"), CONTRACT.runs)
    yield Trials(lab, CONTRACT)
    lab.close()


def test_every_setting_has_an_entry_and_no_entry_is_of_a_setting_that_there_is_not() -> None:
    there, listed = set(keys_of(RunConfig)), set(CONTRACT.settings)
    advice = "add under `settings:` a line `KEY: { to: ANOTHER VALUE, first: [RULES THAT READ IT] }`"
    assert not there - listed, f"settings without an entry in {FILE}: {sorted(there - listed)}; {advice}"
    assert not listed - there, f"entries of {FILE} for settings that there are not: {sorted(listed - there)}"


def test_every_rule_has_an_entry_that_names_the_rules_it_reads_files_of(trials: Trials) -> None:
    records = trials.lab.records()
    maker = {file: CONTRACT.instead.get(record["rule"], record["rule"]) for file, record in records.items()}
    read: dict[str, set[str]] = {rule: set() for rule in maker.values()}
    for record in records.values():
        before = {maker[file] for file in record["input"] if file in maker} - {"kernels"}  # which reruns no stage
        read[CONTRACT.instead.get(record["rule"], record["rule"])] |= before
    advice = "add under `rules:` a line `RULE: [RULES WHOSE FILES IT READS]`"
    assert not set(read) - set(CONTRACT.rules), (
        f"rules without an entry in {FILE}: {set(read) - set(CONTRACT.rules)}; {advice}"
    )
    assert read == {rule: set(before) for rule, before in CONTRACT.rules.items()}, f"mend `rules:` in {FILE}"


@pytest.mark.parametrize("run", CONTRACT.runs)
def test_every_rule_makes_a_file_or_is_a_target(trials: Trials, run: str) -> None:
    listed = trials.lab.listed_rules(run)
    unknown = listed - set(CONTRACT.rules) - set(CONTRACT.instead) - CONTRACT.targets
    assert not unknown, f"not under `rules:`, `instead:` or `targets:` of {FILE}: {sorted(unknown)}"


def test_every_file_of_the_project_has_an_entry(trials: Trials) -> None:
    files = [name for name in trials.lab.files() if not CONTRACT.is_read_at_start(name)]
    without = [name for name in files if CONTRACT.file(name) is None]
    advice = "add under `files:` a line `PATTERN: [RULES THAT READ IT]`, [] if none does"
    assert not without, f"files without an entry in {FILE}: {without}; {advice}"
    unused = [pattern for pattern in CONTRACT.files if not any(fits(pattern, name) for name in files)]
    assert not unused, f"patterns of {FILE} that fit no file: {unused}"


def fits(pattern: str, name: str) -> bool:
    return fnmatch(name, pattern.replace("{part}", "*"))


def test_every_input_that_no_rule_makes_has_an_entry_that_names_the_rule(trials: Trials) -> None:
    records = trials.lab.records()
    lacking = set()
    for record in records.values():
        for name in set(record["input"]) - set(records):
            if (trials.lab.folder / name).is_file():
                trial = CONTRACT.file(name)
                if trial is None or record["rule"] not in trial.first:
                    lacking.add((name, record["rule"]))
    assert not lacking, f"inputs of rules that {FILE} does not list, under `files:`: {sorted(lacking)}"


def test_the_digest_of_every_rule_covers_the_modules_that_its_command_reaches_and_no_other(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codedigest, "PACKAGE", trials.lab.folder / "afa")
    parameters = {record["rule"]: " ".join(record["params"]) for record in trials.lab.records().values()}
    code = Code()
    for rule, command in trials.commands.items():
        reached, _ = modules_and_names(command)
        functions = functions_of(command)
        if not functions:
            continue
        called = [f"{function.__module__}:{function.__name__}" for function in functions]
        roots = [*called, *(str(trials.lab.folder / name) for name in notebooks_of(command))]
        parts = set(code.parts(*roots)) - set(called)
        assert parts == reached, f"{rule}: digested and not reached, or the other way: {sorted(parts ^ reached)}"
        expected = code.digest(*roots)
        assert expected in parameters[rule], f"{rule}: no parameter has the digest of what its command calls: {roots}"
        assert versions() in parameters[rule], f"{rule}: no parameter has the versions of packages"


def test_every_module_is_in_the_graph_that_the_expectation_comes_from() -> None:
    files = (ROOT / "afa").rglob("*.py")
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in files}
    unseen = sorted(names - graph().modules)
    assert not unseen, f"modules that grimp does not see: {unseen}; is there a folder without __init__.py?"


@pytest.mark.parametrize("run", CONTRACT.runs)
def test_nothing_runs_again_without_a_change_and_all_code_comes_from_the_copy(trials: Trials, run: str) -> None:
    trials.nothing(run)
    files = trials.lab.reruns(run).modules
    assert "afa.paper.config" in files
    assert all(file.startswith(f"{trials.lab.folder}/afa/") for file in files.values())


@pytest.mark.parametrize("run", CONTRACT.runs)
def test_white_space_comments_docstrings_help_and_the_words_of_errors_alone_rerun_nothing(
    trials: Trials, run: str
) -> None:
    folder = trials.lab.folder
    modules = {path.relative_to(folder).as_posix(): path.read_bytes() for path in (folder / "afa").rglob("*.py")}
    rules = {name: (folder / name).read_bytes() for name in trials.lab.files() if name.endswith(("smk", "Snakefile"))}
    contents = {
        name: other_words(content, docstrings=name not in CONTRACT.docstrings_count)
        for name, content in modules.items()
        if content.strip()
    }
    contents |= {name: b"# a comment\n\n" + content + b"\n\n# the last comment\n" for name, content in rules.items()}
    with trials.lab.changed(contents):
        assert not trials.lab.reruns(run, remark="# a comment\n\n").rules


@pytest.mark.parametrize("run", CONTRACT.runs)
def test_files_that_are_replaced_by_equal_ones_rerun_nothing(trials: Trials, run: str) -> None:
    names = [name for name in trials.lab.files() if not name.startswith("config/config")]
    with trials.lab.changed({name: (trials.lab.folder / name).read_bytes() for name in names}, replaced=True):
        assert not trials.lab.reruns(run).rules


@pytest.mark.parametrize("key", ["bundle", "geo_cache", "top_k", "encoding.test", "bootstrap.confidence"])
def test_another_value_of_a_setting_reruns_what_reads_it_and_what_follows(trials: Trials, key: str) -> None:
    trials.setting(key, CONTRACT.settings[key][0])


def test_two_settings_of_one_rule_that_change_places_rerun_it(trials: Trials) -> None:
    assert trials.swap(DEFAULT_RUN, "chaos.selecting_seeds", "chaos.measuring_seeds")


@pytest.mark.parametrize(
    "name",
    [
        "resources/paper/tab_chaos.csv",
        "resources/elicitation/record/recorded.jsonl",
        "my_bundle/unary.csv",
        "mirror/series/GSE117nnn/GSE117993/suppl/values.txt.gz",
        "notebooks/chaos.ipynb",
        "afa/evaluate/templates/report.css",
        "afa/paper/experiments/columns.csv",
    ],
)
def test_a_file_changed_in_its_place_reruns_what_reads_it_and_what_follows(trials: Trials, name: str) -> None:
    trials.file(name)


@pytest.mark.parametrize(
    "module", ["afa.model.orders", "afa.evaluate.figures", "afa.paper.experiments.sign", "afa.paper.config"]
)
def test_a_changed_function_reruns_the_rules_whose_command_reaches_it(trials: Trials, module: str) -> None:
    trials.module(module)


def test_a_changed_kernel_reruns_in_one_run_the_stages_that_reach_it(trials: Trials) -> None:
    trials.module("afa.engine.gauges")


@pytest.mark.parametrize("package", NUMERICS)
def test_another_version_of_a_package_behind_the_numbers_reruns_all_that_runs_code_of_afa(
    trials: Trials, package: str
) -> None:
    installed = f"{package}-999.0.dist-info"
    (trials.lab.folder / installed).mkdir()
    said = f"Metadata-Version: 2.1\nName: {package}\nVersion: 999.0\n".encode()
    with trials.lab.changed({f"{installed}/METADATA": said}):
        done = trials.lab.reruns(DEFAULT_RUN)
    (trials.lab.folder / installed).rmdir()
    afas = {rule for rule, command in trials.commands.items() if command.startswith("afa ")}
    trials.expect(f"{package} 999.0", DEFAULT_RUN, afas, done)


def test_a_half_saved_module_stops_only_what_reaches_it_and_is_named_with_its_line(trials: Trials) -> None:
    before = trials.lab.reruns(DEFAULT_RUN, target="gauge").rules
    with trials.lab.changed({"afa/evaluate/figures.py": b"y = 1\nx = (\n"}):
        assert trials.lab.reruns(DEFAULT_RUN, target="gauge").rules == before
        with pytest.raises(
            AssertionError, match=r"afa/evaluate/figures\.py, line 2: found a module that does not parse"
        ):
            trials.lab.reruns(DEFAULT_RUN)


def test_swapped_names_of_one_assignment_rerun_the_rules_that_use_them(trials: Trials) -> None:
    name = "afa/paper/experiments/chaos.py"
    before = (trials.lab.folder / name).read_bytes()
    after = before.replace(b"SELECTING, MEASURING = ", b"MEASURING, SELECTING = ")
    assert after != before
    with trials.lab.changed({name: after}):
        done = trials.lab.reruns(DEFAULT_RUN)
    first = trials.rules_of("afa.paper.experiments.chaos", "run") | trials.rules_of(
        "afa.paper.experiments.chaos", "summarise"
    )
    trials.expect("names in afa.paper.experiments.chaos", DEFAULT_RUN, first, done)


def test_how_intervals_are_resampled_is_nothing_to_the_shards_of_the_allocation_grid(trials: Trials) -> None:
    assert "allocation_shard" not in trials.rules_of("afa.evaluate.resampling", "interval")
