# The checked settings of this run, and what every rule needs of them.
from pathlib import Path

from snakemake.exceptions import WorkflowError

from afa.codedigest import DIGEST_LENGTH, PACKAGE, code_digest
from afa.config import check_run_config, cohort_file, own_rule_files
from afa.cohort.config import load_cohort_config
from afa.errors import AfaError
from afa.files import sha256_of

try:
    settings = check_run_config(config)
    COHORT_FILE = cohort_file(settings, Path("config/cohorts"))
    OWN_RULE_FILES = own_rule_files(settings)
    SIMULATED = load_cohort_config(COHORT_FILE).origin == "simulated"
except AfaError as error:
    raise WorkflowError(str(error)) from None

RUN = f"results/{settings.run_name}"
SOLVER = (
    f"--damping {settings.inference.damping} --tolerance {settings.inference.tolerance}"
    f" --max-iterations {settings.inference.max_iterations}"
)
RESAMPLES = (
    f"--resamples {settings.bootstrap.resamples}"
    f" --confidence {settings.bootstrap.confidence}"
)
SHARDS = [f"{part}-of-{settings.shards}" for part in range(1, settings.shards + 1)]


def command_digest(command):
    """Digest of the code that one command runs, such as `bundle:bundle_build`: the rule runs again when it changes."""
    return code_digest(f"afa.cli.{command}")


def template_digest(pattern):
    """Digest of what a page is written in beside Python, so that its rule runs again when that changes."""
    parts = sorted((PACKAGE / "report" / "templates").glob(pattern))
    return "".join(sha256_of(part)[:DIGEST_LENGTH] for part in parts)


# What figure notebooks import: they run again when it changes.
NOTEBOOK_CODE = command_digest("report:notebook") + "".join(
    code_digest(f"afa.{module}")
    for module in (
        "bundle",
        "cluster",
        "cohort.cohort",
        "report.figures",
        "report.grid",
        "report.paper_tables",
        "report.binary_form",
        "report.comparison",
    )
)


def comma_separated(numbers):
    return ",".join(map(str, numbers))


wildcard_constraints:
    shard=r"\d+-of-\d+",
    gain=r"\w+",
