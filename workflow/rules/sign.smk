# Sign convergence under random order: patients in shards, then gathered.
rule sign_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=temp(directory(f"{RUN}/shards/sign/{{shard}}")),
    log:
        f"{RUN}/logs/sign_shard/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/sign_shard/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        seeds=comma_separated(settings.random_order.seeds),
        starts=comma_separated(settings.random_order.starts),
        solver=SOLVER,
        code=command_digest("experiment:experiment_sign"),
    shell:
        "afa experiment sign --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " --seeds {params.seeds} --starts {params.starts} {params.solver} --threads {threads}"
        " --out {output.tables} > {log} 2>&1"


rule sign:
    input:
        shards=expand(f"{RUN}/shards/sign/{{shard}}", shard=SHARDS),
    output:
        tables=directory(f"{RUN}/tables/sign"),
    log:
        f"{RUN}/logs/sign.log",
    benchmark:
        f"{RUN}/benchmarks/sign.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule sign_summary:
    input:
        tables=f"{RUN}/tables/sign",
    output:
        rows=f"{RUN}/summary/sign.csv",
    log:
        f"{RUN}/logs/sign_summary.log",
    benchmark:
        f"{RUN}/benchmarks/sign_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_sign"),
    shell:
        "afa summary sign {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
