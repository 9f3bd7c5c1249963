# The closure of every duel against its two models held directly: patients in shards, then gathered.
rule gauge_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=temp(directory(f"{RUN}/shards/gauge/{{shard}}")),
    log:
        f"{RUN}/logs/gauge_shard/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/gauge_shard/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        seeds=f"--seeds {comma_separated(settings.gauge.seeds)}",
        rounds=f"--rounds {comma_separated(settings.gauge.rounds)}",
        solver=SOLVER,
        code=command_digest("experiment:experiment_gauge"),
    shell:
        "afa experiment gauge --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " {params.seeds} {params.rounds} {params.solver} --threads {threads}"
        " --out {output.tables} > {log} 2>&1"


rule gauge:
    input:
        shards=expand(f"{RUN}/shards/gauge/{{shard}}", shard=SHARDS),
    output:
        tables=directory(f"{RUN}/tables/gauge"),
    log:
        f"{RUN}/logs/gauge.log",
    benchmark:
        f"{RUN}/benchmarks/gauge.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule gauge_summary:
    input:
        tables=f"{RUN}/tables/gauge",
    output:
        rows=f"{RUN}/summary/gauge.csv",
    log:
        f"{RUN}/logs/gauge_summary.log",
    benchmark:
        f"{RUN}/benchmarks/gauge_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_gauge"),
    shell:
        "afa summary gauge {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
