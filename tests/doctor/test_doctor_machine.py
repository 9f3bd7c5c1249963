"""Checks of disk, memory, cores and cluster, on machines made up by hand."""

from dataclasses import replace
from pathlib import Path

import pytest
from doctored import gathered, listed

from afa.doctor.machine import (
    Facts,
    Reply,
    Room,
    _free_memory,
    ask_server,
    check_cores,
    check_disk,
    check_memory,
    check_profile,
    room_of,
)

RESULTS, CACHE = Path("results"), Path("data/geo")


def nowhere(_):
    raise AssertionError("not to be called")


@pytest.fixture
def machine():
    """Two cores, 8 GB, one disk of 10 GB, and all commands."""
    return Facts(
        room=lambda path: Room(device=1, free_mb=10_000, writable=True),
        memory_mb=8_000,
        cores=2,
        which=lambda command: f"/bin/{command}",
        ask=nowhere,
    )


def levels(findings):
    return [each.level for each in findings]


@pytest.mark.parametrize(("need", "level"), [(5_000, "ok"), (5_001, "warning"), (10_000, "warning"), (10_001, "fault")])
def test_a_disk_must_hold_what_is_needed_and_had_better_hold_twice_that(machine, need, level):
    assert levels(listed(check_disk, {RESULTS: need}, machine)) == [level]


def test_two_folders_of_one_disk_share_its_room(machine):
    (found,) = listed(check_disk, {RESULTS: 6_000, CACHE: 6_000}, machine)
    assert found.level == "fault"
    assert "results and data/geo, which will take about 12.0 GB" in found.found


def test_two_disks_are_looked_at_one_by_one(machine):
    rooms = {RESULTS: Room(1, 10_000, True), CACHE: Room(2, 100, True)}
    assert levels(listed(check_disk, {RESULTS: 1_000, CACHE: 1_000}, replace(machine, room=rooms.__getitem__))) == [
        "ok",
        "fault",
    ]


def test_a_folder_that_must_not_be_written_is_a_fault(machine):
    found = listed(check_disk, {RESULTS: 1}, replace(machine, room=lambda path: Room(1, 10_000, writable=False)))
    assert levels(found) == ["fault", "ok"]
    assert "no permission" in found[0].found


@pytest.mark.parametrize(
    ("together", "largest", "level"),
    [(8_000, 5_000, "ok"), (8_001, 5_000, "warning"), (8_001, 8_001, "fault"), (None, None, "warning")],
)
def test_memory_must_hold_the_largest_job_and_had_better_hold_all_at_once(machine, together, largest, level):
    assert levels(listed(check_memory, together, largest, machine)) == [level]


def test_memory_of_which_nothing_is_known_is_no_fault(machine):
    assert levels(listed(check_memory, 1, 1, replace(machine, memory_mb=None))) == ["warning"]


def test_fewer_shards_than_cores_are_warned_of(machine):
    assert levels(listed(check_cores, 2, machine)) == ["ok"]
    assert levels(listed(check_cores, 1, machine)) == ["warning"]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder with a profile, in which the test works."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "workflow/profiles/slurm"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("executor: slurm\njobs: 100\n")
    return folder / "config.yaml"


def with_commands(machine, *commands):
    return replace(machine, which=lambda command: f"/bin/{command}" if command in commands else None)


def test_no_profile_is_nothing_to_check(machine):
    assert gathered(check_profile, None, machine) == ([], None)


def test_a_cluster_with_its_commands_is_in_order(machine, slurm):
    found, executor = gathered(check_profile, "slurm", with_commands(machine, "sbatch", "scancel", "sacct", "squeue"))
    assert levels(found) == ["ok", "ok"]
    assert executor == "slurm"


def test_a_profile_can_be_given_as_a_folder(machine, slurm):
    assert gathered(check_profile, "workflow/profiles/slurm", machine)[1] == "slurm"


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        ((), "no such command: sbatch, scancel, sacct or squeue"),
        (("sbatch", "sacct", "squeue"), "no such command: scancel"),
    ],
)
def test_a_cluster_that_lacks_something_is_a_fault(machine, slurm, commands, words):
    found, _ = gathered(check_profile, "slurm", with_commands(machine, *commands))
    assert [each.found for each in found if each.level == "fault"] == [words]


def test_one_command_for_the_state_of_jobs_is_enough(machine, slurm):
    found, _ = gathered(check_profile, "slurm", with_commands(machine, "sbatch", "scancel", "squeue"))
    assert levels(found) == ["ok", "warning"]
    assert "squeue" in found[1].next_step


def test_a_local_profile_asks_for_no_cluster(machine, slurm):
    slurm.write_text("cores: all\n")
    found, executor = gathered(check_profile, "slurm", with_commands(machine))
    assert levels(found) == ["ok"]
    assert executor == "local"


def test_a_profile_that_is_not_there_is_a_fault_that_names_those_that_are(machine, slurm):
    (found,), executor = gathered(check_profile, "sge", machine)
    assert found.level == "fault"
    assert "one of slurm" in found.found
    assert executor is None


def test_a_profile_that_is_not_yaml_is_a_fault(machine, slurm):
    slurm.write_text("executor: [\n")
    (found,), _ = gathered(check_profile, "slurm", machine)
    assert found.level == "fault"


def test_the_room_of_a_folder_that_is_not_there_is_that_above_it(tmp_path):
    found = room_of(tmp_path / "a/b/c")
    assert found == replace(room_of(tmp_path), free_mb=found.free_mb)  # others may write at the same time
    assert found.free_mb > 0
    assert not (tmp_path / "a").exists()


def test_free_memory_is_the_kernels_or_what_a_container_has_left(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 1000000 kB\n")
    assert _free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(1024)
    (tmp_path / "memory.max").write_text("500000000\n")
    (tmp_path / "memory.current").write_text("200000000\n")
    assert _free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(300)
    (tmp_path / "memory.max").write_text("max\n")
    assert _free_memory(tmp_path / "meminfo", tmp_path) == pytest.approx(1024)
    assert _free_memory(tmp_path / "nothing", tmp_path) is None


def test_a_server_that_is_not_there_is_no_answer():
    assert ask_server("http://127.0.0.1:9/file") == Reply(False, "no answer (ConnectionError)")
