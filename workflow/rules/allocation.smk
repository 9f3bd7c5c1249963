# The allocation grid has one job for each shard of the patients and each gain.
# The rule that joins the shards is in stages.smk.
rule allocation_shard:
    """Tables of the stage `allocation`, for one gain and one shard of the patients."""
    input:
        bundle=FILES["bundle"],
        cohort=FILES["cohort"],
        own_rules=OWN_RULE_FILES,
        kernels=ancient(COMPILED),
    output:
        tables=temp(directory(shard_folder("allocation"))),
    log:
        f"{RUN}/logs/allocation_shard/{{gain}}/{{shard}}.log",
    benchmark:
        f"{RUN}/benchmarks/allocation_shard/{{gain}}/{{shard}}.tsv"
    group:
        "shards_of_allocation"
    conda:
        ENVIRONMENT
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        inputs=input_options,
        settings=settings_of_part,
        contents=contents(OWN_RULE_FILES),
        code=stage_digest("allocation", "stage", "run"),
    shell:
        "afa stage allocation {params.inputs} --shard {wildcards.shard} --settings {params.settings:q}"
        " --threads {threads} --out {output.tables} > {log} 2>&1"


# This rule writes a page that shows, step by step, which features each allocation rule chose for some patients.
rule explorer:
    """A page that steps through the acquisition of some patients."""
    input:
        bundle=FILES["bundle"],
        cohort=FILES["cohort"],
        tables=FILES["allocation"],
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
        bundle=folder_of_input("bundle"),
        cohort=folder_of_input("cohort"),
        tables=folder_of_input("tables"),
        patients=f"--patients {settings.explorer.patients}",
        k=f"--k {settings.top_k}",
        solver=SOLVER,
        code=command_digest("report:explorer_page", template_digest("explorer*")),
    shell:
        "afa explorer --bundle {params.bundle} --cohort {params.cohort} --tables {params.tables}"
        " {params.patients} {params.k} {params.solver} --threads {threads}"
        " --out {output} > {log} 2>&1"
