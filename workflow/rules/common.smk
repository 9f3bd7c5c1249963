# The checked settings of this run, and what every rule needs of them.
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

from afa.codedigest import DIGEST_LENGTH, PACKAGE, Code
from afa.config import (
    carried_extract,
    check_run_config,
    cohort_file,
    language_models,
    own_rule_files,
)
from afa.bundle.read import entities_of
from afa.cohort.table_cohort import (
    TableCohort,
    load_cohort_file,
    nobody_is_complete,
)
from afa.errors import AfaError
from afa.files import sha256_of
from afa.report.benchmarks import UNMEASURED, fold, read_needs
from afa.stages import left_out, stages
from afa.workflow import (
    decide_by_content,
    join_the_living,
    remove_temporaries,
    remove_timestamps,
    workflow_folder,
)


def home(path):
    """The path of a file or folder that comes with the workflow."""
    return str(path) if HOME == Path.cwd() else str(HOME / path)


def here_or_home(path):
    """A path as the settings have it; where there is no such thing here, the one that comes with the workflow."""
    return path if path.exists() else Path(home(path))


try:
    # Another folder than the one it runs in, for a module or with --directory.
    HOME = workflow_folder(workflow.current_basedir, ".snakemake")
    settings = check_run_config(config)
    COHORT_FILE = str(
        cohort_file(settings, Path("config/cohorts"), Path(home("config/cohorts")))
    )
    OWN_RULE_FILES = [os.path.relpath(file) for file in own_rule_files(settings)]
    COHORT = load_cohort_file(COHORT_FILE)
    TABLE = isinstance(COHORT, TableCohort)
    # A field has a bundle of its own; without it, and without a bundle that is named, the study is elicited.
    FIELD = Path(COHORT_FILE).parent if Path(COHORT_FILE).name == "study.yaml" else None
    OWN_BUNDLE = settings.bundle or FIELD
    ENTITIES = None if OWN_BUNDLE is None else entities_of(OWN_BUNDLE)
    # The stages of the paper take patients of whom everything was measured.
    GAPS = bool(FIELD) and nobody_is_complete(COHORT, settings.tables)
    NEEDS = read_needs(home("resources/benchmarks"))
    # After a crash the same command goes on: the lock that a dead run left is removed, a living one's never.
    if workflow.is_main_process and (kept := join_the_living(".snakemake")):
        logger.warning(f"afa: {kept}")
except AfaError as error:
    raise WorkflowError(str(error)) from None
JOB_SHELL = HOME / "workflow" / "scripts" / "job.sh"
decide_by_content(workflow.current_basedir.get_path_or_uri(secret_free=True))


def doubled(path):
    """A path for what Snakemake formats: braces in the name of a folder are no names of wildcards."""
    return str(path).replace("{", "{{").replace("}", "}}")


# Jobs find the afa of the Python that runs Snakemake also where that is called by its path, .venv/bin/snakemake.
BESIDE = doubled(shlex.quote(str(Path(sys.executable).parent)))
shell.prefix(
    f'set -euo pipefail; PATH="$PATH":{BESIDE}; source {doubled(shlex.quote(str(JOB_SHELL)))}; '
)
ENVIRONMENT = doubled(HOME.absolute() / "envs" / "afa.yaml")


onsuccess:
    if not workflow.storage_settings.notemp:
        remove_temporaries(workflow)
        remove_timestamps(RUN)
        fold(Path(RUN))


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
    return sorted(str(path) for path in shown if path.is_file())


PAPER_TABLES = files_of(home("resources/paper"), "*.csv")


CODE = Code(Path(".snakemake/afa_code.json"))


def command_digest(command):
    """Digest of the code that one command runs, such as `bundle:bundle_build`: the rule runs again when it changes."""
    return CODE.digest(f"afa.cli.{command}")


def template_digest(pattern):
    """Digest of what a page is written in beside Python, so that its rule runs again when that changes."""
    templates = PACKAGE / "report" / "templates"
    parts = [templates / "base.html", *sorted(templates.glob(pattern))]
    return "".join(sha256_of(part)[:DIGEST_LENGTH] for part in parts)


def notebook_code(notebook):
    """Digest of the code that a figure notebook imports, beside that of the command that runs it."""
    try:
        return command_digest("report:notebook") + CODE.notebook(notebook)
    except AfaError as error:
        raise WorkflowError(str(error)) from None


# Snakemake compares the params of two runs of a job as sets of values, without their names. Where two of them could
# change places, each carries its option: `--seeds 0,1`, not `0,1`.
def live_options(*prompts):
    """What changes the answers of a live stage of the elicitation. The key is read by the command, from the environment alone."""
    if not settings.elicitation.live:
        return ""
    from afa.elicit.study import MODEL
    from afa.elicit.prompts import prompt_digest

    digests = "".join(prompt_digest(prompt)[:DIGEST_LENGTH] for prompt in prompts)
    return f"{digests} of {os.environ.get(MODEL, 'no model')}"


def comma_separated(numbers):
    return ",".join(map(str, numbers))


# What this run does not have, and why: stages that need what bundle and cohort lack, and the paper's own numbers.
LEFT_OUT = left_out(2 if ENTITIES is None else ENTITIES, labelled=bool(COHORT.labels))
if TABLE:
    LEFT_OUT["layer0_synthetic"] = (
        "it is about the paper's synthetic portfolio, not about this table"
    )
    LEFT_OUT["errata"] = "the errata are about gene expression"
    LEFT_OUT["comparison"] = "the paper's numbers are about another disease"
elif "allocation" in LEFT_OUT:
    LEFT_OUT["errata"] = LEFT_OUT["comparison"] = LEFT_OUT["allocation"]
STAGES = {name: stage for name, stage in stages().items() if name not in LEFT_OUT}
# Paths of what stages read; any other name is that of a stage, whose tables are read.
PATHS = {
    "bundle": f"{RUN}/bundle",
    "cohort": f"{RUN}/cohort",
    "by_cohort": f"{RUN}/cohort_by_cohort.parquet",
    "portfolio": home("config/portfolio.yaml"),
}


def tables_of(names):
    """The paths of the inputs of a job, by name."""
    return {name: PATHS.get(name, f"{RUN}/tables/{name}") for name in names}


def settings_of(keys):
    """What a job reads of the settings, as JSON; single keys of a section have a dot."""
    document = settings.model_dump(mode="json")
    chosen = {}
    for head, _, name in (key.partition(".") for key in keys):
        if name:
            chosen.setdefault(head, {})[name] = document[head][name]
        else:
            chosen[head] = document[head]
    return json.dumps(chosen)


def input_options(wildcards, input):
    """The options that name the inputs of a job: of the first two their own, of all others --input."""
    own = ("bundle", "cohort")
    return " ".join(
        f"--{name} {path}" if name in own else f"--input {name}={path}"
        for name, path in input.items()
        if name not in ("tables", "kernels")
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
    """The folder of a field, of this run or of those that come with the workflow."""
    return here_or_home(Path("resources/fields") / name)


def files_of_field(name):
    """What a field is made of, its table included where that is in a mirror."""
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


# What a job asks of a cluster, by what its rule took in stored runs; a later attempt asks for more.
def memory(wildcards, attempt, rulename):
    return NEEDS.get(rulename, UNMEASURED).mem_mb(attempt)


def minutes(wildcards, attempt, rulename):
    return NEEDS.get(rulename, UNMEASURED).runtime(attempt)
