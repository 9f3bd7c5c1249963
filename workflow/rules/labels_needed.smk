# What labels would buy: classifiers trained on some labelled patients, beside the zero-shot scores of the stage labels.
rule labels_needed:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        by_cohort=f"{RUN}/cohort_by_cohort",
        labels=f"{RUN}/tables/labels",
    output:
        tables=directory(f"{RUN}/tables/labels_needed"),
    log:
        f"{RUN}/logs/labels_needed.log",
    benchmark:
        f"{RUN}/benchmarks/labels_needed.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        sizes=f"--sizes {comma_separated(settings.labels_needed.sizes)}",
        repeats=f"--repeats {settings.labels_needed.repeats}",
        permuted=f"--permuted {settings.labels_needed.permuted}",
        labels=f"--most-labels {settings.labels_needed.labels}",
        tested=f"--tested {settings.labels_needed.tested}",
        of_each_class=f"--of-each-class {settings.labels_needed.of_each_class}",
        code=command_digest("labels_needed:experiment_labels_needed"),
    shell:
        "afa experiment labels-needed --bundle {input.bundle} --cohort {input.cohort} --by-cohort {input.by_cohort}"
        " --labels {input.labels} {params.sizes} {params.repeats} {params.permuted} {params.labels} {params.tested}"
        " {params.of_each_class} --out {output.tables} > {log} 2>&1"


rule labels_needed_summary:
    input:
        tables=f"{RUN}/tables/labels_needed",
    output:
        rows=f"{RUN}/summary/labels_needed.csv",
    log:
        f"{RUN}/logs/labels_needed_summary.log",
    benchmark:
        f"{RUN}/benchmarks/labels_needed_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("labels_needed:summary_labels_needed"),
    shell:
        "afa summary labels-needed {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
