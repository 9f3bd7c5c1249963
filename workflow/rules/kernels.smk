# The compiled kernels of the engine: compiled once, before the stages, which would each compile what they miss. After a
# change of the engine they do. For this rule has no digest of its code: of a job that follows another by ancient() alone,
# Snakemake does not look for changes in a run in which the other runs too.
# They are cached beside Snakemake's own records: in the project, which all nodes of a cluster see, and out of the
# results, since machine code is not the same bytes on any two machines.
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
