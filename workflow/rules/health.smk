# The elicitation's health: its answers against each other, where they are ours, and its signs against the data.
OF_STUDY = {}
if settings.bundle is None:
    OF_STUDY = {
        "study": ancient(ELICITATION.study),
        "files": STUDY_FILES,
        "answers": RECORD_FILES,
        "unary": f"{RUN}/elicitation/unary",
        "pairwise": f"{RUN}/elicitation/pairwise",
    }


rule elicitation_health:
    input:
        **OF_STUDY,
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/elicitation_health"),
    log:
        f"{RUN}/logs/elicitation_health.log",
    benchmark:
        f"{RUN}/benchmarks/elicitation_health.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        record=lambda wildcards, input: (
            f"--study '{input.study}' --record '{RECORD}' --asked {input.unary} --asked {input.pairwise}"
            if OF_STUDY
            else ""
        ),
        draws=settings.bootstrap.resamples,
        code=command_digest("experiment:experiment_elicitation_health"),
    shell:
        "afa experiment elicitation-health --bundle {input.bundle} --cohort {input.cohort} {params.record}"
        " --draws {params.draws} --out {output.tables} > {log} 2>&1"


rule elicitation_health_summary:
    input:
        tables=f"{RUN}/tables/elicitation_health",
    output:
        rows=f"{RUN}/summary/elicitation_health.csv",
    log:
        f"{RUN}/logs/elicitation_health_summary.log",
    benchmark:
        f"{RUN}/benchmarks/elicitation_health_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_elicitation_health"),
    shell:
        "afa summary elicitation-health {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
