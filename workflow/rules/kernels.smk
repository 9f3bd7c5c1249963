# The compiled kernels of the engine, compiled once before the stages start. After a change of the engine this rule does
# not run again; each stage then compiles the kernels that it lacks. The rule deliberately has no digest of its code:
# while this job is planned, Snakemake does not check for changes in jobs whose only planned input is ancient() output
# of this job. The kernels are cached beside Snakemake's records: in the project, which all nodes of a cluster see, but
# not in the results, because machine code differs between machines.
KERNELS = ".snakemake/afa_kernels"
COMPILED = f"{KERNELS}/compiled.json"


rule kernels:
    """Compile every kernel that stages call; the output names the compiled files with their digests."""
    output:
        COMPILED,
    log:
        f"{RUN}/logs/kernels.log",
    benchmark:
        f"{RUN}/benchmarks/kernels.tsv"
    conda:
        ENVIRONMENT
    threads: 2
    resources:
        mem_mb=memory,
        runtime=minutes,
    shell:
        "afa kernels --out {output} --threads {threads} > {log} 2>&1"
