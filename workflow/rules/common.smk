# The checked settings of this run, and what every rule needs of them.
from pathlib import Path

from snakemake.exceptions import WorkflowError

from afa.codedigest import code_digest
from afa.config import check_run_config, cohort_file
from afa.cohort.config import load_cohort_config
from afa.errors import AfaError

try:
    settings = check_run_config(config)
    COHORT_FILE = cohort_file(settings, Path("config/cohorts"))
    SIMULATED = load_cohort_config(COHORT_FILE).origin == "simulated"
except AfaError as error:
    raise WorkflowError(str(error)) from None

RUN = f"results/{settings.run_name}"
SHARDS = [f"{part}-of-{settings.shards}" for part in range(1, settings.shards + 1)]


def command_digest(function):
    """Digest of the code that one `afa` command runs: the rule runs again when it changes."""
    return code_digest(f"afa.cli:{function}")


wildcard_constraints:
    shard=r"\d+-of-\d+",
