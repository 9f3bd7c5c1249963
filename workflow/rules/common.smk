# This file checks the settings of the run and defines functions and names that all rules use.
import atexit
import hashlib
import json
import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# The rules in this folder require this version of the package afa.
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
    bundled_extract,
    check_run_config,
    cohort_file,
    language_models,
    own_rule_files,
)
from afa.model.bundle.format import HEADER, REQUIRED_FILES
from afa.model.bundle.read import entities_of
from afa.cohort.cohort import CARD_FILE, COHORT_FEATURES_FILE, COHORT_LABELS_FILE
from afa.cohort.config import simulated_files
from afa.cohort.table_cohort import (
    TableCohort,
    load_cohort_file,
    no_complete_patient,
)
from afa.errors import AfaError
from afa.io.files import sha256_of
from afa.paper.report.benchmarks import UNMEASURED, read_needs, read_stored
from afa.paper.report.cells import caption_of, fill_caption
from afa.paper.report.start import start_notes
from afa.paper.sources import SOURCES_VARIABLE, note_sources, sources
from afa.paper.experiments import declared
from afa.paper.workflow import (
    has_profile,
    hold_run_lock,
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
    """Return a path of the settings. If it does not exist, return the same path in the workflow."""
    return path if path.exists() else Path(home(path))


try:
    # If the workflow is a module, or if Snakemake has the option --directory, HOME differs from the working folder.
    HOME = workflow_folder(workflow.current_basedir, ".snakemake")
    settings = check_run_config(config)
    COHORT_FILE = str(
        cohort_file(settings, Path("config/cohorts"), Path(home("config/cohorts")))
    )
    OWN_RULE_FILES = [os.path.relpath(file) for file in own_rule_files(settings)]
    COHORT = load_cohort_file(COHORT_FILE)
    SOURCES |= {COHORT_FILE, *OWN_RULE_FILES}
    TABLE = isinstance(COHORT, TableCohort)
    # A labelled data set contains recorded answers of language models, from which its bundle is made. If the settings
    # name neither a labelled data set nor a bundle, the bundle is made from the answers of the elicitation.
    FIELD = Path(COHORT_FILE).parent if Path(COHORT_FILE).name == "study.yaml" else None
    OWN_BUNDLE = settings.bundle or FIELD
    ENTITIES = None if OWN_BUNDLE is None else entities_of(OWN_BUNDLE)
    # The stages that reproduce the paper use only patients with all values measured.
    NO_COMPLETE_PATIENT = bool(FIELD) and no_complete_patient(COHORT, settings.tables)
    NEEDS = read_needs(home("resources/benchmarks"))
    # The lock of a crashed run is removed, so that the same command resumes the run. The lock of an active run is kept.
    if workflow.is_main_process and (kept := hold_run_lock(".snakemake")):
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
    """Return a path with escaped braces, because Snakemake formats it."""
    return str(path).replace("{", "{{").replace("}", "}}")


# Jobs call the command `afa` that is installed beside the Python that runs Snakemake.
# Jobs find the command `afa` even if Snakemake is called by its path, .venv/bin/snakemake.
BESIDE = doubled(shlex.quote(str(Path(sys.executable).parent)))
shell.prefix(
    f'set -euo pipefail; PATH="$PATH":{BESIDE}; source {doubled(shlex.quote(str(JOB_SHELL)))}; '
)
# The path of the environment is relative to the rules, so that Snakemake's records contain no absolute path.
# Braces in an absolute path are escaped, because Snakemake would read them as wildcards.
ENVIRONMENT = "../../envs/afa.yaml"
if "{" in str(HOME.absolute()):
    ENVIRONMENT = doubled(HOME.absolute() / "envs" / "afa.yaml")
os.environ.update(AFA_SOURCE=str(HOME.absolute()))  # for envs/afa.post-deploy.sh


# When a job ends, it checks that its code and its sources have not changed since the start of the run.
onstart:
    note_sources(sources(SOURCES), ".snakemake/afa_sources.json")
    os.environ[SOURCES_VARIABLE] = os.path.abspath(".snakemake/afa_sources.json")
    if not Path(RUN, "summary.csv").exists():
        runs = read_stored(home("resources/benchmarks"))
        cores, here = len(os.sched_getaffinity(0)), not workflow.non_local_exec
        for note in start_notes(
            runs, settings.cohort, Path(RUN), SOURCES, cores=cores, here=here
        ):
            logger.info(f"afa: {note}")


# Shards left by a killed run are removed, because Snakemake itself removes only shards of the current run.
# If the command has --notemp or names a shard as target, shards are not removed.
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
    """Return the files under a folder, except hidden files.

    A rule names these files as inputs, because the time of the folder does not change when a file in it changes.
    """
    found = [path for pattern in patterns for path in Path(folder).glob(pattern)]
    shown = [path for path in found if not path.name.startswith(".")]
    files = sorted(str(path) for path in shown if path.is_file())
    SOURCES.update(files)
    return files


PAPER_TABLES = files_of(home("resources/paper"), "*.csv")
PRINTED_TABLES = [
    Path(file).stem for file in PAPER_TABLES if Path(file).name.startswith("tab_")
]
LARGEST_DIGESTED = 10_000_000
"""Largest source, in bytes, whose content is compared. For larger sources, only Snakemake's own comparison is used."""
DIGESTS = {}


def contents(*parts):
    """Return a digest of the sources of a job, for a parameter. A part is a file or a list of files.

    Snakemake compares the content of a file only if the file is newer than the output. It would therefore not notice a
    file that is replaced by an older file.
    """
    files = [
        file
        for part in parts
        for file in ([part] if isinstance(part, (str, Path)) else part)
    ]
    for file in map(str, files):
        if file not in DIGESTS and os.path.isfile(file):
            large = os.path.getsize(file) > LARGEST_DIGESTED
            DIGESTS[file] = "" if large else sha256_of(file)
    found = [DIGESTS.get(str(file), "") for file in files]
    return f"contents {hashlib.sha256(' '.join(found).encode()).hexdigest()}"


CODE = Code(Path(".snakemake/afa_code.json"))
atexit.register(CODE.keep)


def code_of(*roots, beside=""):
    """Return a function that computes a rule's parameter: digest of a job's code, text `beside`, versions of packages.

    The parameter is a function, so that only planned jobs compute their digests. A module that only other rules use may
    be incomplete while it is edited.
    """

    def digest(wildcards):
        try:
            return f"{CODE.digest(*roots)}{beside} {versions()}"
        except AfaError as error:
            # Snakemake calls this function to compute a parameter of a rule. If the function raised an exception,
            # Snakemake would print a traceback. Exit instead.
            sys.exit(f"afa: {error}")

    return digest


def command_digest(command, beside=""):
    """Return the function that `code_of` makes for one command, such as `bundle:bundle_build`."""
    return code_of(f"afa.cli.{command}", beside=beside)


def stage_digest(name, command, *functions):
    """Return the function that `code_of` makes for one job of a stage: a command, and functions of the stage.

    The digest also covers the declaration of the stage, except inputs and settings.
    """
    stage = declared.STAGES[name]
    said = repr(
        (
            stage.scopes,
            stage.tables,
            stage.single,
            stage.in_all_parts,
            sorted(stage.summary_tables),
        )
    )
    return code_of(
        f"afa.cli.stage:{command}",
        *(f"afa.paper.experiments.{name}:{function}" for function in functions),
        beside=f" {hashlib.sha256(said.encode()).hexdigest()[:DIGEST_LENGTH]}",
    )


def template_digest(pattern):
    """Return a digest of the templates of a page. The rule of the page runs again if a template changes."""
    templates = PACKAGE / "evaluate" / "templates"
    parts = [templates / "base.html", *sorted(templates.glob(pattern))]
    return "".join(sha256_of(part)[:DIGEST_LENGTH] for part in parts)


# PAPER_FILES lists, for each notebook, the files of resources/paper that the notebook shows.
PAPER_FILES = {
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
    return [home(f"resources/paper/{file}") for file in PAPER_FILES.get(notebook, [])]


def notebook_code(notebook):
    """Return the function that `code_of` makes for a figure notebook: its cells, and the command that runs it."""
    return code_of("afa.cli.report:notebook", notebook)


def caption_in(notebook):
    """Return the caption of a notebook's figure, with its fields in braces."""
    try:
        return caption_of(notebook)
    except AfaError as error:
        raise WorkflowError(str(error)) from None


def notebook_caption(notebook):
    """Return the caption of a notebook's figure for Snakemake's own report. Its fields are filled in."""
    return doubled(
        fill_caption(caption_in(notebook), COHORT.name, settings.bootstrap.confidence)
    )


def confidence_option(notebook):
    """Return the option with the confidence of the intervals if the notebook's caption contains it, else ""."""
    said = "{confidence}" in caption_in(notebook)
    return f"-p confidence={settings.bootstrap.confidence}" if said else ""


# To decide whether a job runs again, Snakemake compares the old and new params as sets of values without names. If two
# params of a rule only swapped their values, Snakemake would see no change. To avoid this, a param contains the name of
# its option: `--seeds 0,1`, not `0,1`.
def live_options(*prompts):
    """Return the settings that affect the answers of a live elicitation stage. They exclude the API key."""
    if not settings.elicitation.live:
        return ""
    from afa.model.study import MODEL
    from afa.elicit.prompts import prompt_digest

    digests = "".join(prompt_digest(prompt)[:DIGEST_LENGTH] for prompt in prompts)
    return f"{digests} of {os.environ.get(MODEL, 'no model')}"


def comma_separated(numbers):
    return ",".join(map(str, numbers))


# The keys of SKIPPED are the stages that this run skips, and `comparison` if the run skips the comparison with the
# paper. The values of SKIPPED are the reasons.
# A stage is skipped if the bundle or the cohort does not meet the requirements of the stage.
SKIPPED = declared.left_out(
    2 if ENTITIES is None else ENTITIES,
    labelled=bool(COHORT.labels),
    elicited=OWN_BUNDLE is None,
)
if TABLE:
    SKIPPED["layer0_synthetic"] = (
        "it is about the paper's synthetic portfolio, not about this table"
    )
    SKIPPED["comparison"] = "the paper's numbers are about another disease"
elif "allocation" in SKIPPED:
    SKIPPED["comparison"] = SKIPPED["allocation"]
STAGES = {name: stage for name, stage in declared.STAGES.items() if name not in SKIPPED}
# FILES maps the name of each input to the files that jobs read.
# Some files of a bundle or cohort are not listed, because bundle.yaml and cohort.yaml contain their digests.
FILES = {
    "bundle": [f"{RUN}/bundle/{name}" for name in (HEADER, *REQUIRED_FILES)],
    "cohort": [
        f"{RUN}/cohort/{name}"
        for name in (CARD_FILE, COHORT_FEATURES_FILE, COHORT_LABELS_FILE)
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
    """Return a dictionary with the files of each named input."""
    return {name: FILES[name] for name in names}


# EARLIER_STEPS maps each step of a run to the steps whose files it reads. A run may skip some of these steps.
# Stages are not listed here, because each stage declares its inputs.
EARLIER_STEPS = {
    "bundle": ["unary", "consensus", "evidence", "pairwise", "bundle_dropped"],
    "cohort": ["bundle", "geo", "source"],
    "by_cohort": ["bundle", "geo", "source"],
    "llm_baselines": ["cohort"],
    "llm_choosing": ["cohort"],
}


def files_behind(*names):
    """Return the files of the named stages, bundle or cohort, and every saved file on which these files depend."""
    needed, pending = set(), list(names)
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            stage = STAGES.get(name)
            of_stage = [*stage.inputs, *stage.summary_inputs] if stage else []
            pending += [*of_stage, *EARLIER_STEPS.get(name, [])]
    needed -= {"portfolio", "study"}  # these two are part of the project
    files = [FILES[name] for name in FILES if name in needed]
    rows = [rows_of(name) for name in STAGES if name in needed]
    return [
        file
        for part in (*files, *rows)
        for file in ([part] if isinstance(part, str) else part)
    ]


def files_of_part(part):
    """Return the files of a part of the run, such as `bundle`, `tables/sign` or `curves/sign.parquet`."""
    name = part.removeprefix("tables/")
    return FILES[name] if name in FILES else [f"{RUN}/{part}"]


def rows_of(name):
    """Return a list with the file of a stage's rows of the summary. It is empty if the stage has no rows."""
    has_rows = STAGES[name].summary_settings is not None
    return [f"{RUN}/curves/{name}.parquet"] if has_rows else []


def folder_of(files):
    """Return the folder that contains all files of a list."""
    return os.path.commonpath([os.path.dirname(file) for file in files])


def run_folder(wildcards, input):
    """Return the folder of the run, which is the folder above the cohort's."""
    return os.path.dirname(folder_of(input.cohort))


def folder_of_input(name):
    """Return a function for a parameter: the folder of the files of a named input."""
    return lambda wildcards, input: folder_of(input[name])


def folder_of_output(name):
    """Return a function for a parameter: the folder of the files of a named output."""
    return lambda wildcards, output: folder_of(output[name])


def settings_of(keys):
    """Return the settings that a job reads, as JSON. A key with a dot is a single key of a section."""
    document = settings.model_dump(mode="json")
    chosen = {}
    for head, _, name in (key.partition(".") for key in keys):
        if name:
            chosen.setdefault(head, {})[name] = document[head][name]
        else:
            chosen[head] = document[head]
    return json.dumps(chosen)


def input_options(wildcards, input):
    """Return the options that name the inputs of a stage: --bundle, --cohort, and --input for all other inputs."""
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
    """Return the settings of one part of the grid: a gain and the rules that use it, or the rules without a gain."""
    document = json.loads(settings_of(STAGES["allocation"].settings))
    document["allocation"] = settings.allocation.part(wildcards.gain)
    return json.dumps(document)


wildcard_constraints:
    shard=r"\d+-of-\d+",
    gain=r"\w+",


def field_folder(name):
    """Return the folder of a field, in the working folder or else in the workflow."""
    return here_or_home(Path("resources/fields") / name)


def files_of_field(name):
    """Return the files of a field. If its table is in a mirror, the table is included."""
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
"""Stages that do not use the compiled walk. Its first compilation takes a minute."""
GATES = ("sanity",)
"""Stages that stop a run if a check fails. Another attempt would end in the same way."""


def shard_folder(name):
    """Return the folder of the tables of one shard of a stage, with wildcards."""
    return f"{RUN}/shards/{name}/" + (
        "{gain}/{shard}" if name == "allocation" else "{shard}"
    )


def shard_folders(name):
    """Return the folders of all shards of a stage, in the order in which their tables are joined."""
    gains = settings.allocation.parts if name == "allocation" else [None]
    return expand(shard_folder(name), gain=gains, shard=SHARDS)


def is_split(name):
    """Return True if a stage is split into several jobs. The allocation grid always has one job for each gain."""
    return name == "allocation" or (STAGES[name].sharded and settings.shards > 1)


def rows_option(wildcards, output):
    """Return the option that names the rows of a stage. The text is empty if the stage has no rows."""
    return f"--rows {output.rows}" if output.rows else ""


def sources_of(stage):
    """Return the files among a stage's inputs that are part of the project."""
    return [FILES[name] for name in stage.inputs if name in ("portfolio", "study")]


def series_option(wildcards, input):
    """Return the option that names the folder of the series. The text is empty if GEO itself is used."""
    if SIMULATED:
        return f"--mirror {folder_of(input.files)}"
    kind = "extract" if EXTRACT else "mirror"
    return f"--{kind} {shlex.quote(str(input.series))}" if input.series else ""


# A job requests the memory and time that its rule used in saved runs, and more memory and time in later attempts.
# The records of saved runs contain the memory and time of whole stages, not of shards.
# A job for one shard or for the summary's rows requests as much memory and time as the whole stage.
def need_of(rulename):
    whole = f"{rulename.removesuffix('_shard').removesuffix('_rows')}_tables"
    return NEEDS.get(rulename) or NEEDS.get(whole, UNMEASURED)


def memory(wildcards, attempt, rulename):
    return need_of(rulename).mem_mb(attempt)


def minutes(wildcards, attempt, rulename):
    return need_of(rulename).runtime(attempt)
