# The allocation grid: patients in shards, parts of the grid by gain, then gathered. Its other rules are in stages.smk.
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
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        settings=settings_of_part,
        code=CODE.stage("allocation", "run"),
    shell:
        "afa stage allocation --bundle {input.bundle} --cohort {input.cohort} --shard {wildcards.shard}"
        " --settings {params.settings:q} --threads {threads} --out {output.tables} > {log} 2>&1"


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
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("stage:gather"),
    shell:
        "afa gather {input.shards} --out {output.tables} > {log} 2>&1"


# Duels resolved along random and informed orders.
