# Layer 0: certificates before any observation, on the bundle and on synthetic entities.
rule layer0:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/layer0"),
    log:
        f"{RUN}/logs/layer0.log",
    benchmark:
        f"{RUN}/benchmarks/layer0.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        clusters=comma_separated(settings.layer0.clusters),
        k=settings.top_k,
        solver=SOLVER,
        code=command_digest("topk:experiment_layer0"),
    shell:
        "afa experiment layer0 --bundle {input.bundle} --cohort {input.cohort} --clusters {params.clusters}"
        " --k {params.k} {params.solver} --out {output.tables} > {log} 2>&1"


rule layer0_summary:
    input:
        tables=f"{RUN}/tables/layer0",
    output:
        rows=f"{RUN}/summary/layer0.csv",
    log:
        f"{RUN}/logs/layer0_summary.log",
    benchmark:
        f"{RUN}/benchmarks/layer0_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_layer0"),
    shell:
        "afa summary layer0 {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"


rule layer0_synthetic:
    input:
        portfolio="config/portfolio.yaml",
    output:
        tables=directory(f"{RUN}/tables/layer0_synthetic"),
    log:
        f"{RUN}/logs/layer0_synthetic.log",
    benchmark:
        f"{RUN}/benchmarks/layer0_synthetic.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        simulated=settings.layer0.simulated,
        solver=SOLVER,
        code=command_digest("topk:experiment_layer0_synthetic"),
    shell:
        "afa experiment layer0-synthetic --portfolio {input.portfolio} --simulated {params.simulated} {params.solver}"
        " --threads {threads} --out {output.tables} > {log} 2>&1"


rule layer0_synthetic_summary:
    input:
        tables=f"{RUN}/tables/layer0_synthetic",
    output:
        rows=f"{RUN}/summary/layer0_synthetic.csv",
    log:
        f"{RUN}/logs/layer0_synthetic_summary.log",
    benchmark:
        f"{RUN}/benchmarks/layer0_synthetic_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_layer0_synthetic"),
    shell:
        "afa summary layer0-synthetic {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
