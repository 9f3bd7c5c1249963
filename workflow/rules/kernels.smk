# The kernels of the engine are compiled once, before the stages start.
# After a change of the engine this rule does not run again; each stage then compiles the kernels that it lacks.
# The rule has no digest of its code on purpose.
# While this job is planned, Snakemake checks no other job whose only planned input is an ancient() output of this job.
# The kernels are cached beside Snakemake's records: all nodes of a cluster see this folder of the project.
# The kernels are not part of the results, because machine code differs between machines.
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
