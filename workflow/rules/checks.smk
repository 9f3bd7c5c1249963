# What must hold in every run, and what the paper says against what it comes to. A failed check stops the run.
rule errata_computed:
    input:
        config=COHORT_FILE,
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        source=f"{RUN}/source.json",
        aliases=home("resources/genes/aliases.csv"),
        ensembl=home("resources/genes/ensembl.csv"),
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
    output:
        tables=directory(f"{RUN}/tables/errata_computed"),
    log:
        f"{RUN}/logs/errata_computed.log",
    benchmark:
        f"{RUN}/benchmarks/errata_computed.tsv"
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        test=settings.encoding.test,
        level=settings.encoding.level,
        solver=SOLVER,
        code=command_digest("stage:experiment_errata_computed"),
    shell:
        "afa experiment errata-computed {input.config} --bundle {input.bundle} --cohort {input.cohort}"
        " --source {input.source} --aliases {input.aliases} --ensembl {input.ensembl}"
        " --test {params.test} --level {params.level} --paper {input.paper}"
        " {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule errata:
    input:
        computed=f"{RUN}/tables/errata_computed",
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
        texts=home("resources/paper/errata.yaml"),
        rows=expand(
            f"{RUN}/curves/{{stage}}.parquet",
            stage=[
                "sign",
                "chaos",
                "allocation",
                "layer1",
                "layer0",
                "binary",
                "gauge",
            ],
        ),
    output:
        tables=directory(f"{RUN}/tables/errata"),
    log:
        f"{RUN}/logs/errata.log",
    benchmark:
        f"{RUN}/benchmarks/errata.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        summaries=lambda wildcards, input: " ".join(
            f"--summary {rows}" for rows in input.rows
        ),
        code=command_digest("stage:experiment_errata"),
    shell:
        "afa experiment errata --computed {input.computed} {params.summaries} --paper {input.paper}"
        " --out {output.tables} > {log} 2>&1"


rule errata_summary:
    input:
        tables=f"{RUN}/tables/errata",
    output:
        rows=f"{RUN}/curves/errata.parquet",
    log:
        f"{RUN}/logs/errata_summary.log",
    benchmark:
        f"{RUN}/benchmarks/errata_summary.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("stage:summary_errata"),
    shell:
        "afa summary errata {input.tables} --out {output.rows} > {log} 2>&1"


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
