# What must hold in every run, and what the paper says against what it comes to. A failed check stops the run.
rule sanity:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/sanity"),
    log:
        f"{RUN}/logs/sanity.log",
    benchmark:
        f"{RUN}/benchmarks/sanity.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        seeds=comma_separated(settings.sanity.seeds),
        solver=SOLVER,
        code=command_digest("experiment:experiment_sanity"),
    shell:
        "afa experiment sanity --bundle {input.bundle} --cohort {input.cohort} --seeds {params.seeds}"
        " {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule sanity_summary:
    input:
        tables=f"{RUN}/tables/sanity",
    output:
        rows=f"{RUN}/summary/sanity.csv",
    log:
        f"{RUN}/logs/sanity_summary.log",
    benchmark:
        f"{RUN}/benchmarks/sanity_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_sanity"),
    shell:
        "afa summary sanity {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"


rule errata:
    input:
        config=COHORT_FILE,
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        source=f"{RUN}/source.json",
        aliases="resources/genes/aliases.csv",
        ensembl="resources/genes/ensembl.csv",
        paper=ancient("resources/paper"),
        tables=PAPER_TABLES,
        rows=expand(
            f"{RUN}/summary/{{stage}}.csv",
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
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        summaries=lambda wildcards, input: " ".join(
            f"--summary {rows}" for rows in input.rows
        ),
        test=settings.encoding.test,
        level=settings.encoding.level,
        solver=SOLVER,
        code=command_digest("experiment:experiment_errata"),
    shell:
        "afa experiment errata {input.config} --bundle {input.bundle} --cohort {input.cohort}"
        " --source {input.source} --aliases {input.aliases} --ensembl {input.ensembl}"
        " --test {params.test} --level {params.level} {params.summaries} --paper {input.paper}"
        " {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule errata_summary:
    input:
        tables=f"{RUN}/tables/errata",
    output:
        rows=f"{RUN}/summary/errata.csv",
    log:
        f"{RUN}/logs/errata_summary.log",
    benchmark:
        f"{RUN}/benchmarks/errata_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("summary:summary_errata"),
    shell:
        "afa summary errata {input.tables} --out {output.rows} > {log} 2>&1"
