# Chaotic patients: in shards, then gathered; the groups need the whole cohort and are formed in the summary.
rule chaos_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=temp(directory(f"{RUN}/shards/chaos/{{shard}}")),
    log:
        f"{RUN}/logs/chaos_shard/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/chaos_shard/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        selecting=f"--selecting {comma_separated(settings.chaos.selecting_seeds)}",
        measuring=f"--measuring {comma_separated(settings.chaos.measuring_seeds)}",
        solver=SOLVER,
        code=command_digest("experiment:experiment_chaos"),
    shell:
        "afa experiment chaos --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " {params.selecting} {params.measuring} {params.solver}"
        " --threads {threads} --out {output.tables} > {log} 2>&1"


rule chaos:
    input:
        shards=expand(f"{RUN}/shards/chaos/{{shard}}", shard=SHARDS),
    output:
        tables=directory(f"{RUN}/tables/chaos"),
    log:
        f"{RUN}/logs/chaos.log",
    benchmark:
        f"{RUN}/benchmarks/chaos.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule chaos_summary:
    input:
        tables=f"{RUN}/tables/chaos",
    output:
        rows=f"{RUN}/summary/chaos.csv",
    log:
        f"{RUN}/logs/chaos_summary.log",
    benchmark:
        f"{RUN}/benchmarks/chaos_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_chaos"),
    shell:
        "afa summary chaos {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
