# The elicitation's health: its answers against each other, where they are ours, and its signs against the data.
OF_STUDY = {}
if OWN_BUNDLE is None:
    OF_STUDY = {
        "study": ancient(STUDY),
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
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        record=lambda wildcards, input: (
            f"--input study={shlex.quote(str(input.study))} --input record={shlex.quote(str(RECORD))}"
            f" --input unary={input.unary} --input pairwise={input.pairwise}"
            if OF_STUDY
            else ""
        ),
        settings=settings_of(STAGES["elicitation_health"].settings),
        code=CODE.stage("elicitation_health", "run"),
    shell:
        "afa stage elicitation_health --bundle {input.bundle} --cohort {input.cohort} {params.record}"
        " --settings {params.settings:q} --out {output.tables} > {log} 2>&1"
