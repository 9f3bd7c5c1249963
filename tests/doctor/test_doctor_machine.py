"""Checks of network, disk, memory, cores and cluster, on machines made up by hand."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from doctored import gathered, listed

from afa.doctor import checks
from afa.doctor.checks import (
    Room,
    check_cores,
    check_disk,
    check_memory,
    check_network,
    check_profile,
    free_memory,
    room_of,
)

RESULTS, CACHE = Path("results"), Path("data/geo")


@pytest.fixture(autouse=True)
def made_up(monkeypatch):
    """8 GB, one disk of 10 GB, and all commands."""
    monkeypatch.setattr(checks, "room_of", lambda path: Room(device=1, free_mb=10_000, writable=True))
    monkeypatch.setattr(checks, "free_memory", lambda: 8_000)
    monkeypatch.setattr(checks.shutil, "which", lambda command: f"/bin/{command}")


def levels(findings):
    return [each.level for each in findings]


@pytest.mark.parametrize(("need", "level"), [(5_000, "ok"), (5_001, "warning"), (10_000, "warning"), (10_001, "fault")])
def test_a_disk_must_hold_what_is_needed_and_had_better_hold_twice_that(need, level):
    assert levels(listed(check_disk, {RESULTS: need})) == [level]


def test_two_folders_of_one_disk_share_its_room():
    (found,) = listed(check_disk, {RESULTS: 6_000, CACHE: 6_000})
    assert found.level == "fault"
    assert "results and data/geo, which will take about 12.0 GB" in found.found


def test_two_disks_are_looked_at_one_by_one(monkeypatch):
    rooms = {RESULTS: Room(1, 10_000, True), CACHE: Room(2, 100, True)}
    monkeypatch.setattr(checks, "room_of", rooms.__getitem__)
    assert levels(listed(check_disk, {RESULTS: 1_000, CACHE: 1_000})) == ["ok", "fault"]


def test_a_folder_that_must_not_be_written_is_a_fault(monkeypatch):
    monkeypatch.setattr(checks, "room_of", lambda path: Room(1, 10_000, writable=False))
    found = listed(check_disk, {RESULTS: 1})
    assert levels(found) == ["fault", "ok"]
    assert "no permission" in found[0].found


@pytest.mark.parametrize(
    ("together", "largest", "level"),
    [(8_000, 5_000, "ok"), (8_001, 5_000, "warning"), (8_001, 8_001, "fault"), (None, None, "warning")],
)
def test_memory_must_hold_the_largest_job_and_had_better_hold_all_at_once(together, largest, level):
    assert levels(listed(check_memory, together, largest)) == [level]


def test_memory_of_which_nothing_is_known_is_no_fault(monkeypatch):
    monkeypatch.setattr(checks, "free_memory", lambda: None)
    assert levels(listed(check_memory, 1, 1)) == ["warning"]


def test_fewer_shards_than_cores_are_warned_of():
    assert levels(listed(check_cores, 2, 2)) == ["ok"]
    assert levels(listed(check_cores, 1, 2)) == ["warning"]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder with a profile, in which the test works."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "workflow/profiles/slurm"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("executor: slurm\njobs: 100\n")
    return folder / "config.yaml"


@pytest.fixture
def with_commands(monkeypatch):
    """Have a machine these commands alone."""

    def only(*commands):
        monkeypatch.setattr(checks.shutil, "which", lambda name: f"/bin/{name}" if name in commands else None)

    return only


def test_no_profile_is_nothing_to_check():
    assert gathered(check_profile, None) == ([], None)


def test_a_cluster_with_its_commands_is_in_order(slurm, with_commands):
    with_commands("sbatch", "scancel", "sacct", "squeue")
    found, executor = gathered(check_profile, "slurm")
    assert levels(found) == ["ok", "ok"]
    assert executor == "slurm"


def test_a_profile_can_be_given_as_a_folder(slurm):
    assert gathered(check_profile, "workflow/profiles/slurm")[1] == "slurm"


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ((), "no such command: sbatch, scancel, sacct or squeue"),
        (("sbatch", "sacct", "squeue"), "no such command: scancel"),
    ],
)
def test_a_cluster_that_lacks_something_is_a_fault(slurm, with_commands, commands, words):
    with_commands(*commands)
    found, _ = gathered(check_profile, "slurm")
    assert [each.found for each in found if each.level == "fault"] == [words]


def test_one_command_for_the_state_of_jobs_is_enough(slurm, with_commands):
    with_commands("sbatch", "scancel", "squeue")
    found, _ = gathered(check_profile, "slurm")
    assert levels(found) == ["ok", "warning"]
    assert "squeue" in found[1].next_step


def test_a_local_profile_asks_for_no_cluster(slurm, with_commands):
    slurm.write_text("cores: all\n")
    with_commands()
    found, executor = gathered(check_profile, "slurm")
    assert levels(found) == ["ok"]
    assert executor == "local"


def test_a_profile_that_is_not_there_is_a_fault_that_names_those_that_are(slurm):
    (found,), executor = gathered(check_profile, "sge")
    assert found.level == "fault"
    assert "one of slurm" in found.found
    assert executor is None


def test_a_profile_that_is_not_yaml_is_a_fault(slurm):
    slurm.write_text("executor: [\n")
    (found,), _ = gathered(check_profile, "slurm")
    assert found.level == "fault"


def test_the_room_of_a_folder_that_is_not_there_is_that_above_it(tmp_path):
    found = room_of(tmp_path / "a/b/c")
    assert found == replace(room_of(tmp_path), free_mb=found.free_mb)  # others may write at the same time
    assert found.free_mb > 0
    assert not (tmp_path / "a").exists()


def test_free_memory_is_the_kernels_or_what_a_container_has_left(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 1000000 kB\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(1024)
    (tmp_path / "memory.max").write_text("500000000\n")
    (tmp_path / "memory.current").write_text("200000000\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(300)
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(1024)
    assert free_memory(tmp_path / "nothing", tmp_path) is None


def test_a_server_that_is_not_there_is_a_fault():
    findings, size = gathered(check_network, ["http://127.0.0.1:9/file"], ask=True)
    assert [each.found for each in findings] == ["http://127.0.0.1:9/file: no answer (ConnectionError)"]
    assert (levels(findings), size) == (["fault"], 0)


def test_nothing_to_fetch_needs_no_network():
    findings, size = gathered(check_network, (), ask=True)
    assert (levels(findings), size) == (["ok"], 0)


def test_servers_are_asked_only_on_request(monkeypatch):
    monkeypatch.setattr("requests.head", None)
    findings, _ = gathered(check_network, ("a", "b"), ask=False)
    assert levels(findings) == ["warning"]
    assert "a, b" in findings[0].found


def test_a_server_that_has_no_such_file_is_a_fault_and_sizes_are_summed(monkeypatch):
    replies = {
        "a": SimpleNamespace(ok=True, status_code=200, headers={"Content-Length": "107800000"}),
        "b": SimpleNamespace(ok=True, status_code=200, headers={}),
        "c": SimpleNamespace(ok=False, status_code=404, headers={}),
    }
    monkeypatch.setattr("requests.head", lambda url, **_: replies[url])
    findings, size = gathered(check_network, tuple(replies), ask=True)
    assert levels(findings) == ["ok", "ok", "fault"]
    assert "108 MB" in findings[0].found
    assert "size not given" in findings[1].found
    assert size == 107.8
