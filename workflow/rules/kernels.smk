# The kernels of the engine are compiled once, before the stages start.
# If the engine changes, this rule does not run again. Each stage then compiles the kernels that are missing.
# This rule deliberately has no digest of its code.
# If this job had to run, Snakemake would not check other jobs whose only planned input is an ancient() output of it.
# The kernels are cached next to Snakemake's records, because all nodes of a cluster see this folder of the project.
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
