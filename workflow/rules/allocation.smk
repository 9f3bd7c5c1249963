# The allocation grid: patients in shards, cells by gain, then gathered; and what it is held against.
rule allocation_truth:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/allocation_truth"),
    log:
        f"{RUN}/logs/allocation_truth.log",
    benchmark:
        f"{RUN}/benchmarks/allocation_truth.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        k=settings.top_k,
        solver=SOLVER,
        code=command_digest("topk:experiment_allocation_truth"),
    shell:
        "afa experiment allocation-truth --bundle {input.bundle} --cohort {input.cohort} --k {params.k}"
        " {params.solver} --out {output.tables} > {log} 2>&1"


rule allocation_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        own_rules=OWN_RULE_FILES,
    output:
        tables=temp(directory(f"{RUN}/shards/allocation/{{gain}}/{{shard}}")),
    log:
        f"{RUN}/logs/allocation_shard/{{gain}}/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/allocation_shard/{{gain}}/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        rules=",".join(settings.allocation.rules),
        schedules=",".join(settings.allocation.schedules),
        k=settings.top_k,
        seeds=comma_separated(settings.allocation.seeds),
        solver=SOLVER,
        code=command_digest("topk:experiment_allocation"),
    shell:
        "afa experiment allocation --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " --rules {params.rules} --gain {wildcards.gain} --schedules {params.schedules} --k {params.k}"
        " --seeds {params.seeds} {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule allocation:
    input:
        shards=expand(
            f"{RUN}/shards/allocation/{{gain}}/{{shard}}",
            gain=settings.allocation.parts,
            shard=SHARDS,
        ),
    output:
        tables=directory(f"{RUN}/tables/allocation"),
    log:
        f"{RUN}/logs/allocation.log",
    benchmark:
        f"{RUN}/benchmarks/allocation.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule allocation_summary:
    input:
        tables=f"{RUN}/tables/allocation",
        truth=f"{RUN}/tables/allocation_truth",
    output:
        rows=f"{RUN}/summary/allocation.csv",
    log:
        f"{RUN}/logs/allocation_summary.log",
    benchmark:
        f"{RUN}/benchmarks/allocation_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_allocation"),
    shell:
        "afa summary allocation {input.tables} --truth {input.truth} {params.resamples}"
        " --out {output.rows} > {log} 2>&1"


# Duels resolved along random and informed orders.
rule layer1_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=temp(directory(f"{RUN}/shards/layer1/{{shard}}")),
    log:
        f"{RUN}/logs/layer1_shard/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/layer1_shard/{{shard}}.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        seeds=comma_separated(settings.layer1.seeds),
        solver=SOLVER,
        code=command_digest("topk:experiment_layer1"),
    shell:
        "afa experiment layer1 --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " --seeds {params.seeds} {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule layer1:
    input:
        shards=expand(f"{RUN}/shards/layer1/{{shard}}", shard=SHARDS),
    output:
        tables=directory(f"{RUN}/tables/layer1"),
    log:
        f"{RUN}/logs/layer1.log",
    benchmark:
        f"{RUN}/benchmarks/layer1.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("experiment:experiment_gather"),
    shell:
        "afa experiment gather {input.shards} --out {output.tables} > {log} 2>&1"


rule layer1_summary:
    input:
        tables=f"{RUN}/tables/layer1",
    output:
        rows=f"{RUN}/summary/layer1.csv",
    log:
        f"{RUN}/logs/layer1_summary.log",
    benchmark:
        f"{RUN}/benchmarks/layer1_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_layer1"),
    shell:
        "afa summary layer1 {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
