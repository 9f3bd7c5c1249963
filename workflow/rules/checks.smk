# What the paper says beside what this run comes to.
# The paper and this run side by side: every printed cell and every claim, each with a verdict and its reason.
rule comparison:
    input:
        summary=f"{RUN}/summary.csv",
        cohort=f"{RUN}/cohort",
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
        answers=home("resources/paper/answers.yaml"),
        effects=home("resources/paper/headlines.yaml"),
    output:
        directory(f"{RUN}/comparison"),
    log:
        f"{RUN}/logs/comparison.log",
    benchmark:
        f"{RUN}/benchmarks/comparison.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("report:compare_with_paper"),
    shell:
        "afa compare {input.summary} --cohort {input.cohort} --paper {input.paper}"
        " --out {output} > {log} 2>&1"
