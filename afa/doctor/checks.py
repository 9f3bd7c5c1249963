"""What a run starts from, and whether the machine can carry it.

The project's folder, bundle, cohort, series, models that plan; network, disk, memory, cores, a cluster's commands.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from afa.bundle import load_bundle, validate_bundle
from afa.cohort.config import CohortConfig, simulation_config
from afa.cohort.geo import GEO_URL, Source, SourceFile, fetch, places, read_samples, series_folder
from afa.cohort.samples import make_labels, select
from afa.cohort.table_cohort import TableCohort, encode_cohort, find_table, load_cohort_file, read_table_labels
from afa.config import Baselines, Elicitation, RunConfig, carried_extract, cohort_file, language_models
from afa.elicit.answers import unary_questions
from afa.elicit.record import Record
from afa.elicit.recorded import Recorded
from afa.elicit.search import EMAIL
from afa.elicit.study import BASE_URL, KEY, MODEL, RECORD_FOLDER, load_study
from afa.elicit.tables import check_answered, outcomes
from afa.errors import AfaError
from afa.files import sha256_of
from afa.stages.inputs import check_duels
from afa.yamlfile import read_mapping

COHORTS, PROFILES = Path("config/cohorts"), Path("workflow/profiles")
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")
TIMEOUT = 3.0
"""Seconds that a server may take to answer."""

_MEGABYTE = 1e6


@dataclass(frozen=True)
class Finding:
    """`found` is one line; `next_step` is empty only where nothing is to be done.

    A fault stops the run, or would spoil it; a warning leaves it to the reader.
    """

    level: Literal["ok", "warning", "fault"]
    check: str
    found: str
    next_step: str = ""

    def __str__(self) -> str:
        step = f" Next step: {self.next_step}." if self.next_step else ""
        return f"{self.level:<8} {self.check:<12} {self.found}.{step}"


class Findings(list[Finding]):
    """What the checks have found so far: each adds to it, and returns what later checks need to know."""

    def ok(self, check: str, found: str) -> None:
        self.append(Finding("ok", check, found))

    def warning(self, check: str, found: str, next_step: str = "") -> None:
        self.append(Finding("warning", check, found, next_step))

    def fault(self, check: str, found: str, next_step: str) -> None:
        self.append(Finding("fault", check, found, next_step))

    @contextmanager
    def of_errors(self, check: str) -> Iterator[None]:
        """End the block where something is refused, with a fault for everything that the error lists."""
        try:
            yield
        except AfaError as error:
            for each in error.faults:
                self.fault(check, f"{each.where}: found {each.found}; expected {each.expected}", each.next_step)


def counted(number: int, noun: str) -> str:
    """`1 fault`, `2 faults`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size_text(megabytes: float) -> str:
    """A size as people say it, in MB below 1 GB (10^3 MB)."""
    if megabytes < 1:
        return "under 1 MB"
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"


def check_project(findings: Findings) -> bool:
    """Whether this is the folder that a run starts from; a warning where another run holds it."""
    if not Path("workflow/Snakefile").is_file():
        step = "go to the project's folder, the one with workflow/Snakefile"
        findings.fault("project", f"{Path.cwd()}: found no workflow/Snakefile", step)
        return False
    findings.ok("project", "workflow/Snakefile is here")
    if any(Path(".snakemake/locks").glob("*")):
        step = "wait for that run; where it was killed, the next one takes its lock away by itself"
        findings.warning("project", "Snakemake has locked this folder: a run is going on, or was killed", step)
    return True


def check_bundle(findings: Findings, run: RunConfig) -> tuple[str, ...] | None:
    """The bundle of a run, its own or the elicited one; its entities, None where it has a fault."""
    with findings.of_errors("bundle"):
        if run.bundle is not None:
            bundle = load_bundle(run.bundle)
            check_duels(bundle, run.bundle)
            sizes = f"{len(bundle.entities)} entities, {len(bundle.features)} features"
            findings.ok("bundle", f"{run.bundle}, {bundle.name} {bundle.version}, {sizes}")
            for note in validate_bundle(run.bundle)[1]:
                findings.warning("bundle", note)
            return bundle.entities
        settings = run.elicitation
        study = load_study(settings.study)
        record, questions = settings.record or settings.study / RECORD_FOLDER, unary_questions(study)
        answers = Recorded(Record(record).entries(), study.settings.known_models).answers(questions)
        asked = outcomes(questions, answers)
        if settings.live:
            lacking = int((asked["outcome"] != "answered").sum())
            findings.ok("bundle", f"live elicitation of {settings.study}, {len(study.names)} entities")
            if lacking:
                left = f"{lacking} of {len(asked)} questions for genes are still to be asked"
                findings.warning("bundle", f"live: {left}, before pairs and features")
            _check_live(findings, "bundle", settings, study.settings.variables)
        else:
            check_answered(asked, str(record))
            findings.ok("bundle", f"recorded elicitation of {settings.study}, {len(study.names)} entities")
        return tuple(study.names)
    return None


def _check_live(findings: Findings, check: str, settings: Elicitation | Baselines, variables: Iterable[str]) -> None:
    """What a live run cannot do without."""
    ends = "and the stage that asks will stop"
    for name in variables:
        if not os.environ.get(name):
            findings.warning(check, f"live: {name} is not set, {ends}", "export it")
    if settings.calls is None and settings.tokens is None and settings.money is None:
        step = "set calls, tokens or money beside `live`"
        findings.warning(check, f"live: no cap on calls, tokens or money is set, {ends}", step)


def check_baselines(findings: Findings, run: RunConfig, entities: Sequence[str]) -> None:
    """Whether the settings of `baselines` can be carried out; `entities` are the bundle's, empty where not known."""
    check = "baselines"
    with findings.of_errors(check):
        settings = language_models(run)
        if settings.folder is None:
            findings.ok(check, "off: not live, and no record of answers to these settings")
            return
        if unknown := [name for name in settings.entities if entities and name not in entities]:
            step = "name entities of the bundle, or leave the list empty for all"
            findings.fault(check, f"key baselines.entities: found {', '.join(unknown)}, which the bundle has not", step)
        load_study(settings.study)
        answers = sum(1 for _ in Record(settings.folder).entries()) if settings.folder.exists() else 0
        if settings.live:
            needed = {BASE_URL: True, KEY: True, MODEL: not settings.model, EMAIL: "rag_llm" in settings.methods}
            _check_live(findings, check, settings, [name for name, is_needed in needed.items() if is_needed])
        elif not answers:
            findings.fault(check, f"{settings.folder}: found no answer", "name a folder of answers, or set live")
        if answers or settings.live:
            how = "asked for what it lacks" if settings.live else "replayed, and nothing is asked"
            findings.ok(check, f"{settings.folder}: {answers} answers, {how}")


def check_cohort_file(findings: Findings, run: RunConfig) -> CohortConfig | None:
    """The cohort's file, with its simulation where it has one; None for a table, which is encoded."""
    with findings.of_errors("cohort"):
        path = cohort_file(run, COHORTS)
        config = load_cohort_file(path)
        if not isinstance(config, TableCohort):
            if config.origin == "simulated":
                simulation_config(config)
            findings.ok("cohort", f"{path}: {config.title}")
            return config
        files = find_table(config, run.tables)
        encoded = encode_cohort(config, files)
        patients, features = encoded.values.shape
        if files.labels is not None:
            read_table_labels(files.labels, list(encoded.values.index), list(encoded.controls.index))
        findings.ok("cohort", f"{path}: {config.title}, {patients} patients x {features} features")
        for note in encoded.notes:
            findings.warning("cohort", note)
        if gaps := int(encoded.values.isna().to_numpy().sum()):
            found = f"{gaps:,} missing values in the table: a stage refuses them where the bundle has that feature"
            findings.warning("cohort", found)
    return None


def check_series(
    findings: Findings, config: CohortConfig, run: RunConfig, entities: Sequence[str]
) -> tuple[tuple[str, ...] | None, int | None]:
    """The series' files, looked for where the run will look for them; those of an extract and a mirror are whole.

    Returns
    -------
    The addresses still to be fetched, None where a fault keeps them from being known; and the number of patients, where
    the sample descriptions are at hand and selection and labels hold on them.

    """
    if config.origin == "simulated":
        simulated = simulation_config(config)
        findings.ok("series", f"{simulated.n_patients} patients and {simulated.n_controls} controls will be simulated")
        return (), simulated.n_patients
    extract = carried_extract(run, config.series)
    if extract is not None or run.geo_mirror is not None:
        with findings.of_errors("series"):
            source = fetch(config, cache=run.geo_cache, mirror=run.geo_mirror, extract=extract)
            findings.ok("series", f"{config.series} in {extract or run.geo_mirror}, whole")
            return (), _check_samples(findings, config, source, entities)
        return None, None
    folder = run.geo_cache / series_folder(config.series)
    wanted = [choices[0] for choices in places(config)]
    lacking = [
        place
        for place in wanted
        if not (folder / place.name).is_file() or place.sha256 not in (None, sha256_of(folder / place.name))
    ]
    found = f"{len(lacking)} of 2 files not in {run.geo_cache} yet" if lacking else f"in {run.geo_cache}"
    findings.ok("series", f"{config.series}: {found}")
    addresses = tuple(f"{GEO_URL}/{series_folder(config.series)}/{quote(place.name)}" for place in lacking)
    if wanted[0] in lacking:
        findings.ok("samples", "not at hand: selection and labels show only after the fetch")
        return addresses, None
    path = folder / wanted[0].name
    samples = SourceFile(path, "", path.stat().st_size, wanted[0].form)
    return addresses, _check_samples(findings, config, Source(config.series, samples, samples), entities)


def _check_samples(findings: Findings, config: CohortConfig, source: Source, entities: Sequence[str]) -> int | None:
    """Selection and labels on the sample descriptions themselves; and the number of patients."""
    with findings.of_errors("samples"):
        chosen = select(read_samples(source), config)
        labels = make_labels(chosen.samples.loc[list(chosen.patients)], config.labels, entities)
        found = f"{len(chosen.patients)} patients and {len(chosen.controls)} controls of {chosen.steps[0][1]} samples"
        counts = "; ".join(f"{name} {int((labels[name] == 1).sum())} of {labels[name].count()}" for name in labels)
        findings.ok("samples", f"{found}; positive labels: {counts or 'none'}")
        return len(chosen.patients)
    return None


@dataclass(frozen=True)
class Room:
    """The disk that a path lies on, or would: which one, MB free, and whether files can be written there."""

    device: int
    free_mb: float
    writable: bool


def room_of(path: Path) -> Room:
    """The room at `path`, or where it would be made: at the nearest folder above it that exists."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return Room(place.stat().st_dev, shutil.disk_usage(place).free / _MEGABYTE, os.access(place, os.W_OK))


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> float | None:
    """MB for new processes: the kernel's estimate or what a container has left, the lesser; None if nothing says."""
    lines = _text(meminfo).splitlines()
    available = [float(line.split()[1]) * 1024 / _MEGABYTE for line in lines if line.startswith("MemAvailable:")]
    limit, used = _text(cgroup / "memory.max").strip(), _text(cgroup / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        available.append((int(limit) - int(used)) / _MEGABYTE)
    return min(available, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def check_network(findings: Findings, to_fetch: Sequence[str], *, ask: bool) -> float:
    """What the run will fetch; where `ask`, whether servers have it; and the MB that are known to come."""
    if not to_fetch:
        findings.ok("network", "the run fetches nothing")
        return 0.0
    if not ask:
        found = f"to be fetched, not asked for yet: {', '.join(to_fetch)}"
        findings.warning("network", found, "add --network to ask for them")
        return 0.0
    import requests  # noqa: PLC0415 (only where the network is asked for)

    known_mb, step = 0.0, "check the network, its proxy and the file's name, or give geo_mirror"
    for url in to_fetch:
        try:  # the headers of the file, not the file
            reply = requests.head(url, timeout=TIMEOUT, allow_redirects=True, headers={"Accept-Encoding": "identity"})
        except requests.RequestException as error:
            findings.fault("network", f"{url}: no answer ({type(error).__name__})", step)
            continue
        if reply.ok:
            length = reply.headers.get("Content-Length", "")
            size = int(length) / _MEGABYTE if length.isdigit() else 0.0
            known_mb += size
            said = size_text(size) if size else "size not given"
            findings.ok("network", f"{url}: HTTP status {reply.status_code}, {said}")
        else:
            findings.fault("network", f"{url}: HTTP status {reply.status_code}", step)
    return known_mb


def check_disk(findings: Findings, needs_mb: Mapping[Path, float]) -> None:
    """Room for what each path will hold, MB; paths on one disk share its room."""
    rooms = {path: room_of(path) for path in needs_mb}
    for path, room in rooms.items():
        if not room.writable:
            step = "change its permissions, or choose another folder"
            findings.fault("disk", f"{path}: no permission to write there", step)
    for device in sorted({room.device for room in rooms.values()}):
        paths = [path for path, room in rooms.items() if room.device == device]
        need, free = sum(needs_mb[path] for path in paths), rooms[paths[0]].free_mb
        found = f"{size_text(free)} free for {' and '.join(map(str, paths))}, which will take about {size_text(need)}"
        if free < need:
            findings.fault("disk", found, "make room, or choose another disk")
        elif free < 2 * need:
            findings.warning("disk", found, "make room: the estimate may be wrong by a factor of two")
        else:
            findings.ok("disk", found)


def check_memory(findings: Findings, together_mb: float | None, largest_mb: float | None) -> None:
    """Free memory against the largest jobs that may run together, and against the largest alone."""
    free_mb = free_memory()
    if free_mb is None or together_mb is None or largest_mb is None:
        known = "the system does not say how much is" if free_mb is None else size_text(free_mb)
        findings.warning("memory", f"{known} free; what the jobs need is not known")
        return
    needs = f"the largest job takes {size_text(largest_mb)}, those that may run together {size_text(together_mb)}"
    found = f"{size_text(free_mb)} free; {needs}"
    if free_mb < largest_mb:
        findings.fault("memory", found, "close other programs, or run on a larger machine")
    elif free_mb < together_mb:
        findings.warning("memory", found, "run fewer jobs at a time, for example snakemake --cores 1")
    else:
        findings.ok("memory", found)


def check_cores(findings: Findings, shards: int, cores: int) -> None:
    """Cores that Snakemake will take, against the shards that can fill them."""
    found = f"{counted(cores, 'core')} for jobs, {shards} shards"
    if shards < cores:
        findings.warning("cores", found, "more shards would use more of the cores")
    else:
        findings.ok("cores", found)


def check_profile(findings: Findings, name: str | None) -> str | None:
    """The profile that a run names, with the commands of its cluster, and its executor; None where it names none."""
    if name is None:
        return None
    path = next((place for place in (PROFILES / name, Path(name)) if (place / "config.yaml").is_file()), None)
    if path is None:
        known = ", ".join(sorted(place.parent.name for place in PROFILES.glob("*/config.yaml")))
        found = f"{name}: found no config.yaml in {PROFILES / name}; expected one of {known}, or a folder with one"
        findings.fault("profile", found, "choose one of these, or write the profile")
        return None
    with findings.of_errors("profile"):
        executor = str(read_mapping(path / "config.yaml").get("executor", "local"))
        findings.ok("profile", f"{path / 'config.yaml'}: executor {executor}")
        if executor == "slurm":
            _check_cluster(findings)
        return executor
    return None


def _check_cluster(findings: Findings) -> None:
    """The commands that the Slurm executor calls; of the two that tell a job's state one is enough."""
    lacking = [name for name in ("sbatch", "scancel") if shutil.which(name) is None]
    states = [name for name in ("sacct", "squeue") if shutil.which(name) is not None]
    if not states:
        lacking.append("sacct or squeue")
    if lacking:
        step = "start the run on a node from which jobs are submitted, with Slurm's commands on the PATH"
        findings.fault("cluster", f"no such command: {', '.join(lacking)}", step)
    elif len(states) == 1:
        step = f"set slurm-status-command: {states[0]} in the profile"
        findings.warning("cluster", f"of sacct and squeue only {states[0]} is there", step)
    else:
        findings.ok("cluster", "sbatch, scancel, sacct and squeue are there")
