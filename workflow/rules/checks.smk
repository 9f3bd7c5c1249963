# This rule compares every number and claim of the paper with this run, and writes a verdict and a reason for each.
FILES["comparison"] = [
    f"{RUN}/comparison/{name}"
    for name in (
        "comparison.csv",
        "comparison.parquet",
        "verdicts.parquet",
        "screen.parquet",
        "voters.parquet",
    )
]
VOTERS = FILES["voters"] if "voters" in STAGES else []


rule comparison:
    """Comparison of every table cell and claim of the paper with this run, with a verdict."""
    input:
        summary=f"{RUN}/summary.csv",
        cohort=FILES["cohort"],
        voters=VOTERS,
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
        answers=home("resources/paper/answers.yaml"),
        effects=home("resources/paper/headlines.yaml"),
    output:
        tables=FILES["comparison"],
    log:
        f"{RUN}/logs/comparison.log",
    benchmark:
        f"{RUN}/benchmarks/comparison.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        cohort=folder_of_input("cohort"),
        folder=folder_of_output("tables"),
        voters=lambda wildcards, input: (
            f"--voters {folder_of(input.voters)}" if input.voters else ""
        ),
        contents=contents(
            PAPER_TABLES,
            home("resources/paper/answers.yaml"),
            home("resources/paper/headlines.yaml"),
        ),
        code=command_digest("report:compare_with_paper"),
    shell:
        "afa compare {input.summary} --cohort {params.cohort} --paper {input.paper}"
        " {params.voters} --out {params.folder} > {log} 2>&1"
