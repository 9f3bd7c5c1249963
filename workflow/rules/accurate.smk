# Decisions by mean-field and by accurate inference, on the same states of some patients.
rule accurate:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/accurate"),
    log:
        f"{RUN}/logs/accurate.log",
    benchmark:
        f"{RUN}/benchmarks/accurate.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        patients=f"--patients {settings.accurate.patients}",
        linearity=f"--linearity-patients {settings.accurate.linearity_patients}",
        seed=f"--seed {settings.accurate.seed}",
        rounds=f"--rounds {comma_separated(settings.accurate.rounds)}",
        k=f"--k {settings.top_k}",
        chains=f"--chains {settings.accurate.chains}",
        steps=f"--steps {settings.accurate.steps}",
        limit=f"--limit {settings.accurate.limit:g}",
        strength=f"--strength {settings.closure.strength}",
        solver=SOLVER,
        code=command_digest("accurate:experiment_accurate"),
    shell:
        "afa experiment accurate --bundle {input.bundle} --cohort {input.cohort}"
        " {params.patients} {params.linearity} {params.seed} {params.rounds} {params.k}"
        " {params.chains} {params.steps} {params.limit} {params.strength} {params.solver}"
        " --threads {threads} --out {output.tables} > {log} 2>&1"


rule accurate_summary:
    input:
        tables=f"{RUN}/tables/accurate",
    output:
        rows=f"{RUN}/summary/accurate.csv",
    log:
        f"{RUN}/logs/accurate_summary.log",
    benchmark:
        f"{RUN}/benchmarks/accurate_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("accurate:summary_accurate"),
    shell:
        "afa summary accurate {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
