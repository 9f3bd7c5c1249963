"""The contract of reruns, for every setting, every file and every module of `afa`, one change after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest
from rerun_contract import DEFAULT_RUN, load_contract
from rerun_lab import Lab
from rerun_trials import Trials, value_of

CONTRACT = load_contract()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trials(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trials]:
    lab = Lab(tmp_path_factory.mktemp("project"), CONTRACT.runs)
    yield Trials(lab, CONTRACT)
    lab.close()


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
