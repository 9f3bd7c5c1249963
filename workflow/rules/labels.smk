# Scores against the cohort's labels, by reference of the encoding and by closure, beside bundles with shuffled genes.
rule cohort_by_cohort:
    input:
        config=COHORT_FILE,
        source=f"{RUN}/source.json",
        bundle=f"{RUN}/bundle",
        aliases="resources/genes/aliases.csv",
        ensembl="resources/genes/ensembl.csv",
    output:
        cohorts=directory(f"{RUN}/cohort_by_cohort"),
    log:
        f"{RUN}/logs/cohort_by_cohort.log",
    benchmark:
        f"{RUN}/benchmarks/cohort_by_cohort.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        thresholds=comma_separated(settings.labels.thresholds),
        code=command_digest("cohort:cohort_by_cohort"),
    shell:
        "afa cohort by-cohort {input.config} --source {input.source} --bundle {input.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl} --thresholds {params.thresholds}"
        " --out {output.cohorts} > {log} 2>&1"


rule labels:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        by_cohort=f"{RUN}/cohort_by_cohort",
    output:
        tables=directory(f"{RUN}/tables/labels"),
    log:
        f"{RUN}/logs/labels.log",
    benchmark:
        f"{RUN}/benchmarks/labels.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        thresholds=f"--thresholds {comma_separated(settings.labels.thresholds)}",
        strengths=f"--strengths {comma_separated(settings.labels.strengths)}",
        percents=f"--percents {comma_separated(settings.labels.percents)}",
        seeds=f"--seeds {comma_separated(settings.labels.seeds)}",
        permutations=f"--permutations {settings.labels.permutations}",
        whole=f"--whole-permutations {settings.labels.whole_permutations}",
        solver=SOLVER,
        code=command_digest("labels:experiment_labels"),
    shell:
        "afa experiment labels --bundle {input.bundle} --cohort {input.cohort} --by-cohort {input.by_cohort}"
        " {params.thresholds} {params.strengths} {params.percents} {params.seeds} {params.permutations} {params.whole}"
        " {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule labels_summary:
    input:
        tables=f"{RUN}/tables/labels",
    output:
        rows=f"{RUN}/summary/labels.csv",
    log:
        f"{RUN}/logs/labels_summary.log",
    benchmark:
        f"{RUN}/benchmarks/labels_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("labels:summary_labels"),
    shell:
        "afa summary labels {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
