# The checked settings of this run, and what every rule needs of them.
import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

from afa.codedigest import DIGEST_LENGTH, PACKAGE, code_digest, notebook_digest
from afa.config import check_run_config, cohort_file, own_rule_files
from afa.cohort.config import load_cohort_config
from afa.deadrun import join_the_living, remove_gathered
from afa.errors import AfaError
from afa.files import sha256_of

try:
    settings = check_run_config(config)
    COHORT_FILE = cohort_file(settings, Path("config/cohorts"))
    OWN_RULE_FILES = [os.path.relpath(file) for file in own_rule_files(settings)]
    COHORT = load_cohort_config(COHORT_FILE)
except AfaError as error:
    raise WorkflowError(str(error)) from None

# After a crash the same command goes on: the lock that a dead run left is removed, a living one's never.
if workflow.is_main_process and (kept := join_the_living(".snakemake")):
    logger.warning(f"afa: {kept}")
JOB_SHELL = Path(workflow.basedir) / "workflow" / "scripts" / "job.sh"
shell.prefix(f"set -euo pipefail; source '{JOB_SHELL}'; ")


onsuccess:
    # A kill between the gathering of shards and their removal leaves them for good.
    if not workflow.storage_settings.notemp:
        remove_gathered(RUN, workflow.dag.targetfiles)


SIMULATED = COHORT.origin == "simulated"
RUN = f"results/{settings.run_name}"
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


PAPER_TABLES = files_of("resources/paper", "*.csv")


def command_digest(command):
    """Digest of the code that one command runs, such as `bundle:bundle_build`: the rule runs again when it changes."""
    return code_digest(f"afa.cli.{command}")


def template_digest(pattern):
    """Digest of what a page is written in beside Python, so that its rule runs again when that changes."""
    templates = PACKAGE / "report" / "templates"
    parts = [templates / "page.css", *sorted(templates.glob(pattern))]
    return "".join(sha256_of(part)[:DIGEST_LENGTH] for part in parts)


def notebook_code(notebook):
    """Digest of the code that a figure notebook imports, beside those of the command that runs it and of its page."""
    try:
        return (
            command_digest("report:notebook")
            + notebook_digest(notebook)
            + template_digest("notebook.*")
        )
    except AfaError as error:
        raise WorkflowError(str(error)) from None


# Snakemake compares the params of two runs of a job as sets of values, without their names. Where two of them could
# change places, each carries its option: `--seeds 0,1`, not `0,1`.
def live_options(prompt):
    """What changes the answers of a live stage of the elicitation. The key is read by the command, from the environment alone."""
    if not settings.elicitation.live:
        return ""
    from afa.elicit.endpoint import MODEL
    from afa.elicit.prompts import prompt_digest

    return f"{prompt_digest(prompt)[:DIGEST_LENGTH]} of {os.environ.get(MODEL, 'no model')}"


def comma_separated(numbers):
    return ",".join(map(str, numbers))


wildcard_constraints:
    shard=r"\d+-of-\d+",
    gain=r"\w+",
