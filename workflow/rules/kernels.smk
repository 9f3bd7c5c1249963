# The kernels of the engine are compiled once, before the stages start.
# After a change of the engine this rule does not run again; each stage then compiles the kernels that are missing.
# The params of this rule deliberately contain no digest of the code, so that this job does not run again.
# Stages declare this job's output as ancient() input. If this job ran again, Snakemake would check whether a stage is
# out of date only if another job that makes an input of the stage ran again too.
# Compiled kernels are cached in Snakemake's folder .snakemake, because all nodes of a cluster can read this folder.
# Compiled kernels are not part of the results, because machine code differs between machines.
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
