# The checked settings of this run, and functions and names that all rules use.
import atexit
import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The version of the package that these rules call.
PACKAGE_VERSION = "0.2.0"

try:
    from afa import __version__ as installed
except ImportError:
    installed = "none"
if installed != PACKAGE_VERSION:
    rules = workflow.current_basedir
    source = (
        f"git+https://{rules.host}/{rules.repo}@{rules.ref}"
        if hasattr(rules, "host")
        else Path(str(rules)).parents[1].as_uri()
    )
    raise WorkflowError(
        f"afa: found {'no package' if installed == 'none' else installed} in the Python that runs Snakemake; expected"
        f" version {PACKAGE_VERSION}. Next step: install that of these rules there, pip install 'afa[workflow] @ {source}'."
    )

from afa.paper.codedigest import DIGEST_LENGTH, PACKAGE, Code, versions
from afa.paper.config import (
    carried_extract,
    check_run_config,
    cohort_file,
    language_models,
    own_rule_files,
)
from afa.model.bundle.format import HEADER, REQUIRED_FILES
from afa.model.bundle.read import entities_of
from afa.cohort.cohort import CARD_FILE, FEATURES_FILE, LABELS_FILE
from afa.cohort.config import simulated_files
from afa.cohort.table_cohort import (
    TableCohort,
    load_cohort_file,
    nobody_is_complete,
)
from afa.errors import AfaError
from afa.io.files import sha256_of
from afa.paper.report.benchmarks import UNMEASURED, read_needs, read_stored
from afa.paper.report.cells import caption_of, fill_caption
from afa.paper.report.start import start_notes
from afa.paper.sources import NOTED, note_sources, sources
from afa.paper.experiments import declared
from afa.paper.workflow import (
    has_profile,
    join_the_living,
    remove_shards,
    workflow_folder,
)

SOURCES = set()
"""Files of the project that rules name as inputs."""


def home(path):
    """Return the path of a file or folder that is part of the workflow."""
    found = str(path) if HOME == Path.cwd() else str(HOME / path)
    SOURCES.add(found)
    return found


def here_or_home(path):
    """Return a path of the settings, or if nothing exists there, the same path in the workflow."""
    return path if path.exists() else Path(home(path))


try:
    # The workflow's folder is another than the working folder for a module or with --directory.
    HOME = workflow_folder(workflow.current_basedir, ".snakemake")
    settings = check_run_config(config)
    COHORT_FILE = str(
        cohort_file(settings, Path("config/cohorts"), Path(home("config/cohorts")))
    )
    OWN_RULE_FILES = [os.path.relpath(file) for file in own_rule_files(settings)]
    COHORT = load_cohort_file(COHORT_FILE)
    SOURCES |= {COHORT_FILE, *OWN_RULE_FILES}
    TABLE = isinstance(COHORT, TableCohort)
    # A field has its own bundle; without a field and without a bundle in the settings, the study is elicited.
    FIELD = Path(COHORT_FILE).parent if Path(COHORT_FILE).name == "study.yaml" else None
    OWN_BUNDLE = settings.bundle or FIELD
    ENTITIES = None if OWN_BUNDLE is None else entities_of(OWN_BUNDLE)
    # The paper's stages take only patients with all values measured.
    GAPS = bool(FIELD) and nobody_is_complete(COHORT, settings.tables)
    NEEDS = read_needs(home("resources/benchmarks"))
    # The same command resumes after a crash: the lock of a dead run is removed, the lock of a living run never.
    if workflow.is_main_process and (kept := join_the_living(".snakemake")):
        logger.warning(f"afa: {kept}")
except AfaError as error:
    raise WorkflowError(str(error)) from None
JOB_SHELL = HOME / "workflow" / "scripts" / "job.sh"
PROFILE = HOME / "workflow" / "profiles" / "default"
if workflow.is_main_process and not has_profile(sys.argv, workflow.main_snakefile):
    logger.warning(
        f"afa: found no profile; expected the workflow's, which says what is made again and how many cores a run takes."
        f" Next step: add --workflow-profile {PROFILE}, or copy that folder to profiles/default beside your Snakefile."
    )


def doubled(path):
    """Return a path for Snakemake to format, with braces in folder names escaped."""
    return str(path).replace("{", "{{").replace("}", "}}")


# Jobs find the afa of the Python that runs Snakemake, even if Snakemake is called by its path, .venv/bin/snakemake.
BESIDE = doubled(shlex.quote(str(Path(sys.executable).parent)))
shell.prefix(
    f'set -euo pipefail; PATH="$PATH":{BESIDE}; source {doubled(shlex.quote(str(JOB_SHELL)))}; '
)
# The path is relative to these rules, so that no absolute path is recorded.
# Snakemake would read braces in an absolute path as wildcards.
ENVIRONMENT = "../../envs/afa.yaml"
if "{" in str(HOME.absolute()):
    ENVIRONMENT = doubled(HOME.absolute() / "envs" / "afa.yaml")
os.environ.update(AFA_SOURCE=str(HOME.absolute()))  # for envs/afa.post-deploy.sh


# Each job ends with a comparison of the code that it ran, and of its sources, with the files at the start of the run.
onstart:
    note_sources(sources(SOURCES), ".snakemake/afa_sources.json")
    os.environ[NOTED] = os.path.abspath(".snakemake/afa_sources.json")
    if not Path(RUN, "summary.csv").exists():
        runs = read_stored(home("resources/benchmarks"))
        cores, here = len(os.sched_getaffinity(0)), not workflow.non_local_exec
        for note in start_notes(
            runs, settings.cohort, Path(RUN), SOURCES, cores=cores, here=here
        ):
            logger.info(f"afa: {note}")


# A killed run may leave shards that no job will read again, and Snakemake removes only shards of the current run.
# Shards stay if the command asks for them, by --notemp or as its target.
onsuccess:
    if "--notemp" not in sys.argv and not any(
        "/shards/" in word for word in sys.argv
    ):
        remove_shards(Path(RUN))


SIMULATED = COHORT.origin == "simulated"
RUN = f"results/{settings.run_name}"
if any(Path(RUN, "summary").glob("*.csv")):
    raise WorkflowError(
        f"{RUN}: found a run of a version before 0.2.0; expected a run of this one, or nothing. Next step: give the run"
        " another name, RUN=NAME, or remove that folder."
    )
SOLVER = (
    f"--damping {settings.inference.damping} --tolerance {settings.inference.tolerance}"
    f" --max-iterations {settings.inference.max_iterations}"
)
CLOSURE = (
    f"--coupling {settings.closure.coupling} --strength {settings.closure.strength}"
)
RESAMPLES = (
    f"--resamples {settings.bootstrap.resamples}"
    f" --confidence {settings.bootstrap.confidence}"
)
SHARDS = [f"{part}-of-{settings.shards}" for part in range(1, settings.shards + 1)]


def files_of(folder, *patterns):
    """Files under a folder, hidden ones left out. Rules name them as inputs beside the folder, whose own time does
    not change when a file in it does."""
    found = [path for pattern in patterns for path in Path(folder).glob(pattern)]
    shown = [path for path in found if not path.name.startswith(".")]
    files = sorted(str(path) for path in shown if path.is_file())
    SOURCES.update(files)
    return files


PAPER_TABLES = files_of(home("resources/paper"), "*.csv")
PRINTED_TABLES = [
    Path(file).stem for file in PAPER_TABLES if Path(file).name.startswith("tab_")
]
LOOKED_INTO = 10_000_000
"""Bytes. A larger source counts as Snakemake has it: when it is newer, and other, than what was read."""
DIGESTS = {}


def contents(*parts):
    """What is in the sources of a job, files or lists of them, as a parameter: Snakemake looks into a file only where
    it is newer than what was made of it, and a file of an older date may be put in its place.
    """
    files = [
        file
        for part in parts
        for file in ([part] if isinstance(part, (str, Path)) else part)
    ]
    for file in map(str, files):
        if file not in DIGESTS and os.path.isfile(file):
            large = os.path.getsize(file) > LOOKED_INTO
            DIGESTS[file] = "" if large else sha256_of(file)
    found = [DIGESTS.get(str(file), "") for file in files]
    return f"contents {hashlib.sha256(' '.join(found).encode()).hexdigest()}"


CODE = Code(Path(".snakemake/afa_code.json"))
atexit.register(CODE.keep)


def code_of(*roots, beside=""):
    """A parameter: the digest of the code that one job runs, what counts `beside` it, and the versions of packages.

    A function, as only a job of the plan needs its digest: a module that another rule reaches may be half written.
    """

    def digest(wildcards):
        try:
            return f"{CODE.digest(*roots)}{beside} {versions()}"
        except AfaError as error:
            # Without this exit, Snakemake would show the exception of a parameter with a traceback.
            sys.exit(f"afa: {error}")

    return digest


def command_digest(command, beside=""):
    """Return `code_of` one command, such as `bundle:bundle_build`."""
    return code_of(f"afa.cli.{command}", beside=beside)


def stage_digest(name, command, *functions):
    """`code_of` one job of a stage: a command, the stage's functions that it calls, and what the stage declares beside
    its inputs and settings."""
    stage = declared.STAGES[name]
    said = repr((stage.scopes, stage.tables, stage.single, sorted(stage.rows)))
    return code_of(
        f"afa.cli.stage:{command}",
        *(f"afa.paper.experiments.{name}:{function}" for function in functions),
        beside=f" {hashlib.sha256(said.encode()).hexdigest()[:DIGEST_LENGTH]}",
    )


def template_digest(pattern):
    """Digest of what a page is written in beside Python, so that its rule runs again when that changes."""
    templates = PACKAGE / "evaluate" / "templates"
    parts = [templates / "base.html", *sorted(templates.glob(pattern))]
    return "".join(sha256_of(part)[:DIGEST_LENGTH] for part in parts)


# The files of resources/paper that each notebook shows.
SHOWN = {
    "sign_convergence": ["tab_m2_random_sign.csv"],
    "chaos": ["tab_chaos.csv"],
    "layer0": ["tab_layer0_synthetic.csv"],
    "allocation": ["tab_m2_alloc.csv"],
    "decision_quality": ["tab_m2_phase1_pat5.csv"],
    "layer1": ["tab_layer1_informed.csv"],
    "binary": ["tab_classification_with_llm.csv", "tab_layer1_informed.csv"],
    "gauge": ["tab_m1acc.csv", "tab_m1agree.csv"],
    "comparison": ["answers.yaml"],
}


def shown_in(notebook):
    """Return the files of resources/paper that a notebook shows."""
    return [home(f"resources/paper/{file}") for file in SHOWN.get(notebook, [])]


def notebook_code(notebook):
    """`code_of` a figure notebook's cells, and of the command that runs it."""
    return code_of("afa.cli.report:notebook", notebook)


def caption_in(notebook):
    """Return the caption of a notebook's figure, with its fields in braces."""
    try:
        return caption_of(notebook)
    except AfaError as error:
        raise WorkflowError(str(error)) from None


def notebook_caption(notebook):
    """Return the caption of a notebook's figure, filled in for this run, for Snakemake's own report."""
    return doubled(
        fill_caption(caption_in(notebook), COHORT.name, settings.bootstrap.confidence)
    )


def confidence_option(notebook):
    """Return the option with the confidence of the intervals, for a notebook whose caption contains it."""
    said = "{confidence}" in caption_in(notebook)
    return f"-p confidence={settings.bootstrap.confidence}" if said else ""


# Snakemake compares the params of two runs of a job as sets of values, without the names of the params.
# Two params that could exchange their values therefore include the name of the option: `--seeds 0,1`, not `0,1`.
def live_options(*prompts):
    """Return the settings that affect the answers of a live elicitation stage; the key is only in the environment."""
    if not settings.elicitation.live:
        return ""
    from afa.model.study import MODEL
    from afa.elicit.prompts import prompt_digest

    digests = "".join(prompt_digest(prompt)[:DIGEST_LENGTH] for prompt in prompts)
    return f"{digests} of {os.environ.get(MODEL, 'no model')}"


def comma_separated(numbers):
    return ",".join(map(str, numbers))


# Parts that this run lacks, with the reason: the comparison with the paper, and stages.
# A run lacks a stage if its bundle or its cohort does not meet the requirements of the stage.
LEFT_OUT = declared.left_out(
    2 if ENTITIES is None else ENTITIES,
    labelled=bool(COHORT.labels),
    elicited=OWN_BUNDLE is None,
)
if TABLE:
    LEFT_OUT["layer0_synthetic"] = (
        "it is about the paper's synthetic portfolio, not about this table"
    )
    LEFT_OUT["comparison"] = "the paper's numbers are about another disease"
elif "allocation" in LEFT_OUT:
    LEFT_OUT["comparison"] = LEFT_OUT["allocation"]
STAGES = {
    name: stage for name, stage in declared.STAGES.items() if name not in LEFT_OUT
}
# `FILES` has the files that jobs read, by name; for a folder, it has the list of the folder's files.
# Other files of a bundle or cohort are covered by the digests in bundle.yaml and cohort.yaml.
FILES = {
    "bundle": [f"{RUN}/bundle/{name}" for name in (HEADER, *REQUIRED_FILES)],
    "cohort": [
        f"{RUN}/cohort/{name}" for name in (CARD_FILE, FEATURES_FILE, LABELS_FILE)
    ],
    "by_cohort": f"{RUN}/cohort_by_cohort.parquet",
    "portfolio": home("config/portfolio.yaml"),
}


def tables_in(folder, names):
    """Return the files of the tables of a stage in a folder."""
    return [f"{folder}/{name}.parquet" for name in names]


for name, stage in STAGES.items():
    FILES[name] = tables_in(f"{RUN}/tables/{name}", stage.tables)


def files_by_name(names):
    """Return the files that a job reads, by the names of its inputs."""
    return {name: FILES[name] for name in names}


# Steps that come before others, except stages, which declare their inputs. Some steps are not in every run.
BEFORE = {
    "bundle": ["unary", "consensus", "evidence", "pairwise", "bundle_dropped"],
    "cohort": ["bundle", "geo", "source"],
    "by_cohort": ["bundle", "geo", "source"],
    "llm_baselines": ["cohort"],
    "llm_choosing": ["cohort"],
}


def files_behind(*names):
    """Return every saved file on which some stages, the bundle or the cohort depend, and their own files."""
    needed, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            stage = STAGES.get(name)
            of_stage = [*stage.inputs, *stage.beside] if stage else []
            pending += [*of_stage, *BEFORE.get(name, [])]
    needed -= {"portfolio", "study"}  # these two are part of the project
    files = [FILES[name] for name in FILES if name in needed]
    rows = [rows_of(name) for name in STAGES if name in needed]
    return [
        file
        for part in (*files, *rows)
        for file in ([part] if isinstance(part, str) else part)
    ]


def files_of_part(part):
    """The files of a part of the run, `bundle`, `tables/sign` or `curves/sign.parquet`, that a figure reads."""
    name = part.removeprefix("tables/")
    return FILES[name] if name in FILES else [f"{RUN}/{part}"]


def rows_of(name):
    """Return a list with the file of a stage's rows of the summary; empty for a stage without rows."""
    has_rows = STAGES[name].summary is not None
    return [f"{RUN}/curves/{name}.parquet"] if has_rows else []


def folder_of(files):
    """Return the folder that contains all files of a list."""
    return os.path.commonpath([os.path.dirname(file) for file in files])


def run_folder(wildcards, input):
    """A parameter: the folder of the run, by its cohort's."""
    return os.path.dirname(folder_of(input.cohort))


def folder_of_input(name):
    """A parameter: the folder of the files of a named input."""
    return lambda wildcards, input: folder_of(input[name])


def folder_of_output(name):
    """A parameter: the folder of the files of a named output."""
    return lambda wildcards, output: folder_of(output[name])


def settings_of(keys):
    """Return the settings that a job reads, as JSON; single keys of a section have a dot."""
    document = settings.model_dump(mode="json")
    chosen = {}
    for head, _, name in (key.partition(".") for key in keys):
        if name:
            chosen.setdefault(head, {})[name] = document[head][name]
        else:
            chosen[head] = document[head]
    return json.dumps(chosen)


def input_options(wildcards, input):
    """The options that name the inputs of a stage: of the first two their own, of all others --input."""
    own = ("bundle", "cohort")
    paths = {
        name: files if isinstance(files, str) else folder_of(files)
        for name, files in input.items()
        if name not in ("tables", "own_rules", "kernels")
    }
    return " ".join(
        f"--{name} {path}" if name in own else f"--input {name}={path}"
        for name, path in paths.items()
    )


def shard_option(wildcards):
    return f"--shard {wildcards.shard}" if "shard" in wildcards.keys() else ""


def settings_of_part(wildcards):
    """What a part of the grid reads: its gain, and the rules that look at one; or those that look at none."""
    document = json.loads(settings_of(STAGES["allocation"].settings))
    document["allocation"] = settings.allocation.part(wildcards.gain)
    return json.dumps(document)


wildcard_constraints:
    shard=r"\d+-of-\d+",
    gain=r"\w+",


def field_folder(name):
    """Return the folder of a field, of this run or of the workflow."""
    return here_or_home(Path("resources/fields") / name)


def files_of_field(name):
    """Return the files of a field, including its table if that is in a mirror."""
    folder = field_folder(name)
    mirrored = [] if settings.tables is None else [settings.tables / name]
    parts = ["study.yaml", "entities.csv", "features.csv", "groups.csv", "record/*.csv"]
    return [
        *files_of(folder, *parts),
        *(
            file
            for place in (folder, *mirrored)
            for file in files_of(place, "values.csv*", "labels.csv")
        ),
    ]


BEGUN_FIRST = ("gauge", "accurate")
"""Stages that do without the walk, which takes the first job of a new installation a minute to compile."""
GATES = ("sanity",)
"""Stages that stop a run on purpose, so that another attempt ends as the first did."""


def shard_folder(name):
    """The folder of the tables of one shard of a stage, with its wildcards."""
    return f"{RUN}/shards/{name}/" + (
        "{gain}/{shard}" if name == "allocation" else "{shard}"
    )


def shard_folders(name):
    """Return the folders of all shards of a stage, in the order in which their tables are joined."""
    gains = settings.allocation.parts if name == "allocation" else [None]
    return expand(shard_folder(name), gain=gains, shard=SHARDS)


def is_split(name):
    """Return True if a stage has separate jobs for parts of it; the allocation grid always has one for each gain."""
    return name == "allocation" or (STAGES[name].sharded and settings.shards > 1)


def rows_option(wildcards, output):
    """Return the option that names the rows of a stage; empty for a stage without rows."""
    return f"--rows {output.rows}" if output.rows else ""


def sources_of(stage):
    """Return the files among a stage's inputs that are part of the project."""
    return [FILES[name] for name in stage.inputs if name in ("portfolio", "study")]


def series_option(wildcards, input):
    """Return the option that names the folder of the series; empty if GEO itself is used."""
    if SIMULATED:
        return f"--mirror {folder_of(input.files)}"
    kind = "extract" if EXTRACT else "mirror"
    return f"--{kind} {shlex.quote(str(input.series))}" if input.series else ""


# Return the memory and time that a job requests: the need of its rule in stored runs, and more in later attempts.
# Stored runs have no shards, so that a job for a shard or for rows requests the need of the whole stage.
def need_of(rulename):
    whole = f"{rulename.removesuffix('_shard').removesuffix('_rows')}_tables"
    return NEEDS.get(rulename) or NEEDS.get(whole, UNMEASURED)


def memory(wildcards, attempt, rulename):
    return need_of(rulename).mem_mb(attempt)


def minutes(wildcards, attempt, rulename):
    return need_of(rulename).runtime(attempt)
