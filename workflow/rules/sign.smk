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
    params:
        part=lambda wildcards: wildcards.shard.replace("-of-", "/"),
        seeds=",".join(map(str, settings.random_order.seeds)),
        damping=settings.inference.damping,
        tolerance=settings.inference.tolerance,
        max_iterations=settings.inference.max_iterations,
        starts=",".join(settings.random_order.starts),
        code=command_digest("experiment_sign"),
    shell:
        "afa experiment sign --bundle {input.bundle} --cohort {input.cohort} --shard {params.part}"
        " --seeds {params.seeds} --damping {params.damping} --tolerance {params.tolerance}"
        " --max-iterations {params.max_iterations} --starts {params.starts} --threads {threads}"
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
    params:
        code=command_digest("experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"
