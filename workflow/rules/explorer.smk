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
