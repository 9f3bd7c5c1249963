# Entities ranked by the scale of their scores and by what is expected of the hidden, beside bundles with shuffled genes.
rule ranking:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/ranking"),
    log:
        f"{RUN}/logs/ranking.log",
    benchmark:
        f"{RUN}/benchmarks/ranking.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        k=f"--k {settings.top_k}",
        rounds=f"--rounds {comma_separated(settings.ranking.rounds)}",
        seeds=f"--seeds {comma_separated(settings.ranking.seeds)}",
        permutations=f"--permutations {settings.ranking.permutations}",
        whole=f"--whole-permutations {settings.ranking.whole_permutations}",
        solver=SOLVER,
        code=command_digest("ranking:experiment_ranking"),
    shell:
        "afa experiment ranking --bundle {input.bundle} --cohort {input.cohort} {params.k} {params.rounds}"
        " {params.seeds} {params.permutations} {params.whole} {params.solver} --threads {threads}"
        " --out {output.tables} > {log} 2>&1"


rule ranking_summary:
    input:
        tables=f"{RUN}/tables/ranking",
    output:
        rows=f"{RUN}/summary/ranking.csv",
    log:
        f"{RUN}/logs/ranking_summary.log",
    benchmark:
        f"{RUN}/benchmarks/ranking_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("ranking:summary_ranking"),
    shell:
        "afa summary ranking {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
