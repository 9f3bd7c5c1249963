from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/resources.smk"
include: "workflow/rules/bundle.smk"
include: "workflow/rules/cohort.smk"
include: "workflow/rules/sign.smk"
include: "workflow/rules/chaos.smk"
include: "workflow/rules/layer0.smk"
include: "workflow/rules/allocation.smk"
include: "workflow/rules/binary.smk"
include: "workflow/rules/labels.smk"
include: "workflow/rules/labels_needed.smk"
include: "workflow/rules/ranking.smk"
include: "workflow/rules/gauge.smk"
include: "workflow/rules/accurate.smk"
include: "workflow/rules/checks.smk"
include: "workflow/rules/health.smk"
include: "workflow/rules/explorer.smk"
include: "workflow/rules/stopping.smk"
include: "workflow/rules/baselines.smk"
include: "workflow/rules/comparison.smk"
include: "workflow/rules/report.smk"


localrules:
    all,
    cohort,
    bundle,
    tables,
    fetch_series,
    summary,
    published,
    comparison,
    run_config,
    provenance,
    report_page,
    workflow_report,


# Target rules: the whole run, or one part of it.
rule all:
    default_target: True
    input:
        f"{RUN}/report.html",
        f"{RUN}/workflow.html",


rule cohort:
    input:
        f"{RUN}/cohort",


rule bundle:
    input:
        f"{RUN}/bundle",


rule tables:
    input:
        f"{RUN}/summary.csv",
