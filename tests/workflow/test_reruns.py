"""What runs again after a change: the contract holds for every setting, file and module of `afa`, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from code_changes import other_words
from code_reach import functions_of, modules_and_names, notebooks_of
from rerun_contract import DEFAULT_RUN, FILE, fits, load_contract
from rerun_lab import Lab
from rerun_trials import Trials, value_of

from afa.paper import codedigest
from afa.paper.codedigest import NUMERICS, Code, versions

CONTRACT = load_contract()

pytestmark = pytest.mark.slow  # finished runs of stand-ins for every job, and a dry run for each change


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    lab = Lab(tmp_path_factory.mktemp("project"), CONTRACT.runs)
    yield Trials(lab, CONTRACT)
    lab.close()


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
    parameters = {rule: " ".join(job["params"]) for rule, job in trials.jobs.items()}
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


def try_all(names: Iterable[str], one: Callable[[str], object]) -> None:
    """Try every one, and then tell of all that failed."""
    failed = []
    for name in names:
        try:
            one(name)
        except (pytest.fail.Exception, AssertionError) as error:
            failed.append(str(error))
    assert not failed, "\n\n".join(failed)


@pytest.mark.parametrize("key", CONTRACT.settings)
def test_another_value_of_each_setting_reruns_what_reads_it_and_what_follows(trials: Trials, key: str) -> None:
    for trial in CONTRACT.settings[key]:
        trials.setting(key, trial)


def test_any_two_settings_of_one_rule_that_change_places_rerun_it(trials: Trials) -> None:
    settings = trials.lab.settings(DEFAULT_RUN)
    readers = {key: entries[0].first for key, entries in CONTRACT.settings.items() if entries[0].run == DEFAULT_RUN}
    pairs = [
        (one, other)
        for one, other in combinations(readers, 2)
        if readers[one] & readers[other] and type(value_of(settings, one)) is type(value_of(settings, other))
    ]
    tried: list[str] = []

    def swap(pair: str) -> None:
        if trials.swap(DEFAULT_RUN, *pair.split()):
            tried.append(pair)

    try_all((" ".join(pair) for pair in pairs), swap)
    assert "gauge.seeds gauge.rounds" in tried


def test_a_change_in_place_of_each_file_reruns_what_reads_it_and_what_follows(trials: Trials) -> None:
    try_all((name for name in trials.lab.files() if not CONTRACT.is_read_at_start(name)), trials.file)


@pytest.mark.parametrize("name", [name for name, trial in CONTRACT.files.items() if name.endswith(("/*", "/*.csv"))])
def test_a_new_file_in_a_folder_reruns_what_reads_the_folder_and_what_follows(trials: Trials, name: str) -> None:
    folder, _, ending = name.rpartition("*")
    new = next(path for path in trials.lab.files() if path.startswith(folder.split("*", maxsplit=1)[0]))
    path = (Path(new).parent / f"zzz{ending or '.new'}").as_posix()
    trial = CONTRACT.file(path)
    assert trial is not None
    trials.new_file(path, trial.first, trial.run)


def test_a_changed_constant_in_a_function_of_each_module_reruns_the_rules_that_reach_it(trials: Trials) -> None:
    folder = trials.lab.folder
    files = sorted((folder / "afa").rglob("*.py"))
    names = (".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__") for file in files)
    try_all(names, trials.module)


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
