"""Checks of disk, memory, cores, packages and cluster, on machines made up by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from afa.doctor import gathered
from afa.doctor.machine import (
    SLURM_PLUGIN,
    Facts,
    Reply,
    Room,
    _core_quota,
    _free_memory,
    ask_server,
    check_cores,
    check_disk,
    check_environment,
    check_memory,
    check_profile,
    room_of,
)

LOCK = "numpy==2.4.1 \\\n    --hash=sha256:00\npandas==3.0.0\nnumba==0.63.0\nsnakemake==9.20.0\nmypy==1.19.0\n"
RESULTS, CACHE = Path("results"), Path("data/geo")


def nowhere(_):
    raise AssertionError("not to be called")


@pytest.fixture
def machine():
    """Two cores, 8 GB, one disk of 10 GB, all commands, and the packages of `LOCK`."""
    return Facts(
        room=lambda path: Room(device=1, free_mb=10_000, writable=True),
        memory_mb=8_000,
        cores=2,
        core_quota=None,
        which=lambda command: f"/bin/{command}",
        installed={"numpy": "2.4.1", "pandas": "3.0.0", "numba": "0.63.0", "snakemake": "9.20.0", "mypy": "1.19.0"},
        ask=nowhere,
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a lock, in which the test works."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/requirements.lock").write_text(LOCK)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def levels(findings):
    return [each.level for each in findings]


@pytest.mark.parametrize(("need", "level"), [(5_000, "ok"), (5_001, "warning"), (10_000, "warning"), (10_001, "fault")])
def test_a_disk_must_hold_what_is_needed_and_had_better_hold_twice_that(machine, need, level):
    assert levels(list(check_disk({RESULTS: need}, machine))) == [level]


def test_two_folders_of_one_disk_share_its_room(machine):
    (found,) = list(check_disk({RESULTS: 6_000, CACHE: 6_000}, machine))
    assert found.level == "fault"
    assert "results and data/geo, which will take about 12.0 GB" in found.found


def test_two_disks_are_looked_at_one_by_one(machine):
    rooms = {RESULTS: Room(1, 10_000, True), CACHE: Room(2, 100, True)}
    assert levels(list(check_disk({RESULTS: 1_000, CACHE: 1_000}, replace(machine, room=rooms.__getitem__)))) == [
        "ok",
        "fault",
    ]


def test_a_folder_that_must_not_be_written_is_a_fault(machine):
    found = list(check_disk({RESULTS: 1}, replace(machine, room=lambda path: Room(1, 10_000, writable=False))))
    assert levels(found) == ["fault", "ok"]
    assert "no permission" in found[0].found


@pytest.mark.parametrize(
    ("together", "largest", "level"),
    [(8_000, 5_000, "ok"), (8_001, 5_000, "warning"), (8_001, 8_001, "fault"), (None, None, "warning")],
)
def test_memory_must_hold_the_largest_job_and_had_better_hold_all_at_once(machine, together, largest, level):
    assert check_memory(together, largest, machine).level == level


def test_memory_of_which_nothing_is_known_is_no_fault(machine):
    assert check_memory(1, 1, replace(machine, memory_mb=None)).level == "warning"


def test_fewer_shards_than_cores_and_a_held_container_are_warned_of(machine):
    assert check_cores(2, machine).level == "ok"
    assert check_cores(1, machine).level == "warning"
    held = check_cores(2, replace(machine, core_quota=1.5))
    assert held.level == "warning"
    assert held.next_step == "type snakemake --cores 1"


def test_the_environment_of_the_lock_is_named(machine, project):
    (found,) = list(check_environment(machine))
    assert (found.level, found.found) == ("ok", "the packages are those of envs/requirements.lock")


def test_another_version_is_a_warning_that_names_what_the_lock_has(machine, project):
    (found,) = list(
        check_environment(replace(machine, installed={**machine.installed, "numpy": "2.3.0", "mypy": "1.0"}))
    )
    assert found.level == "warning"
    assert "numpy 2.3.0, not 2.4.1, mypy 1.0, not 1.19.0" in found.found


def test_a_lock_that_is_gone_is_a_fault(machine, project):
    (project / "envs/requirements.lock").unlink()
    (found,) = list(check_environment(machine))
    assert "requirements.lock" in found.found


def test_commands_that_are_not_on_the_path_are_a_warning(machine, project):
    _, found = list(check_environment(replace(machine, which=lambda command: None)))
    assert (found.level, found.found) == ("warning", "not on the PATH: afa, snakemake")


@pytest.fixture
def slurm(project):
    folder = project / "workflow/profiles/slurm"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("executor: slurm\njobs: 100\n")
    return folder / "config.yaml"


def with_commands(machine, *commands, plugin=True):
    more = {SLURM_PLUGIN: "2.8.0"} if plugin else {}
    return replace(
        machine,
        which=lambda command: f"/bin/{command}" if command in commands else None,
        installed={**machine.installed, **more},
    )


def test_no_profile_is_nothing_to_check(machine):
    assert gathered(check_profile(None, machine)) == ([], None)


def test_a_cluster_with_its_commands_is_in_order(machine, slurm):
    found, executor = gathered(check_profile("slurm", with_commands(machine, "sbatch", "scancel", "sacct", "squeue")))
    assert levels(found) == ["ok", "ok"]
    assert executor == "slurm"


def test_a_profile_can_be_given_as_a_folder(machine, slurm):
    assert gathered(check_profile("workflow/profiles/slurm", machine))[1] == "slurm"


@pytest.mark.parametrize(
    ("commands", "plugin", "words"),
    [
        ((), True, "no such command: sbatch, scancel, sacct or squeue"),
        (("sbatch", "sacct", "squeue"), True, "no such command: scancel"),
        (("sbatch", "scancel", "sacct", "squeue"), False, f"not installed: {SLURM_PLUGIN}"),
    ],
)
def test_a_cluster_that_lacks_something_is_a_fault(machine, slurm, commands, plugin, words):
    found, _ = gathered(check_profile("slurm", with_commands(machine, *commands, plugin=plugin)))
    assert [each.found for each in found if each.level == "fault"] == [words]


def test_one_command_for_the_state_of_jobs_is_enough(machine, slurm):
    found, _ = gathered(check_profile("slurm", with_commands(machine, "sbatch", "scancel", "squeue")))
    assert levels(found) == ["ok", "warning"]
    assert "squeue" in found[1].next_step


def test_a_local_profile_asks_for_no_cluster(machine, slurm):
    slurm.write_text("cores: all\n")
    found, executor = gathered(check_profile("slurm", with_commands(machine)))
    assert levels(found) == ["ok"]
    assert executor == "local"


def test_a_profile_that_is_not_there_is_a_fault_that_names_those_that_are(machine, slurm):
    (found,), executor = gathered(check_profile("sge", machine))
    assert found.level == "fault"
    assert "one of slurm" in found.found
    assert executor is None


def test_a_profile_that_is_not_yaml_is_a_fault(machine, slurm):
    slurm.write_text("executor: [\n")
    (found,), _ = gathered(check_profile("slurm", machine))
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


@pytest.mark.parametrize(("text", "cores"), [("150000 100000\n", 1.5), ("max 100000\n", None)])
def test_the_quota_of_a_container_is_read_in_cores(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert _core_quota(tmp_path / "cpu.max") == cores


def test_a_server_that_is_not_there_is_no_answer():
    assert ask_server("http://127.0.0.1:9/file") == Reply(False, "no answer (ConnectionError)")
