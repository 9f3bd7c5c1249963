# What a job asks of a cluster, by what its rule took in stored runs; a later attempt asks for more.
from afa.report.benchmarks import UNMEASURED, read_needs

try:
    NEEDS = read_needs(home("resources/benchmarks"))
except AfaError as error:
    raise WorkflowError(str(error)) from None


def memory(wildcards, attempt, rulename):
    return NEEDS.get(rulename, UNMEASURED).mem_mb(attempt)


def minutes(wildcards, attempt, rulename):
    return NEEDS.get(rulename, UNMEASURED).runtime(attempt)
