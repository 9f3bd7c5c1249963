# The allocation grid: patients in shards, parts of the grid by gain, then gathered. Its other rules are in stages.smk.
rule allocation_shard:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        own_rules=OWN_RULE_FILES,
        kernels=ancient(COMPILED),
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


# A page to step through some patients' acquisition, made of the choices of the allocation grid.
rule explorer:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        tables=f"{RUN}/tables/allocation",
    output:
        f"{RUN}/explorer.html",
    log:
        f"{RUN}/logs/explorer.log",
    benchmark:
        f"{RUN}/benchmarks/explorer.tsv"
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        patients=f"--patients {settings.explorer.patients}",
        k=f"--k {settings.top_k}",
        solver=SOLVER,
        code=command_digest("report:explorer_page") + template_digest("explorer*"),
    shell:
        "afa explorer --bundle {input.bundle} --cohort {input.cohort} --tables {input.tables}"
        " {params.patients} {params.k} {params.solver} --threads {threads}"
        " --out {output} > {log} 2>&1"
