# The planners' rules of stopping: where each ends an acquisition, and how often wrongly. Orders are those of the grid.
rule stopping_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        choices=f"{RUN}/tables/allocation",
    output:
        tables=temp(directory(f"{RUN}/shards/stopping/{{shard}}")),
    log:
        f"{RUN}/logs/stopping_shard/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/stopping_shard/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        rules=",".join(settings.stopping.rules),
        probabilities=f"--probabilities {comma_separated(settings.stopping.probabilities)}",
        gains=f"--gains {comma_separated(settings.stopping.gains)}",
        budgets=f"--budgets {comma_separated(settings.stopping.budgets)}",
        seed=f"--seed {settings.stopping.seed}",
        k=f"--k {settings.top_k}",
        solver=SOLVER,
        closure=CLOSURE,
        code=command_digest("stopping:experiment_stopping"),
    shell:
        "afa experiment stopping --bundle {input.bundle} --cohort {input.cohort} --choices {input.choices}"
        " --shard {wildcards.shard} --rules {params.rules} {params.probabilities} {params.gains} {params.budgets}"
        " {params.seed} {params.k} {params.solver} {params.closure} --threads {threads} --out {output.tables} > {log} 2>&1"


rule stopping:
    input:
        shards=expand(f"{RUN}/shards/stopping/{{shard}}", shard=SHARDS),
    output:
        tables=directory(f"{RUN}/tables/stopping"),
    log:
        f"{RUN}/logs/stopping.log",
    benchmark:
        f"{RUN}/benchmarks/stopping.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule stopping_summary:
    input:
        tables=f"{RUN}/tables/stopping",
    output:
        rows=f"{RUN}/summary/stopping.csv",
    log:
        f"{RUN}/logs/stopping_summary.log",
    benchmark:
        f"{RUN}/benchmarks/stopping_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("stopping:summary_stopping"),
    shell:
        "afa summary stopping {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
