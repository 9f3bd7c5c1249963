# Every phenotype as a binary task, and how reliable its probability is.
rule binary:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/binary"),
    log:
        f"{RUN}/logs/binary.log",
    benchmark:
        f"{RUN}/benchmarks/binary.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        seeds=comma_separated(settings.random_order.seeds),
        solver=SOLVER,
        closure=CLOSURE,
        code=command_digest("experiment:experiment_binary"),
    shell:
        "afa experiment binary --bundle {input.bundle} --cohort {input.cohort} --seeds {params.seeds}"
        " {params.solver} {params.closure} --threads {threads} --out {output.tables} > {log} 2>&1"


rule binary_summary:
    input:
        tables=f"{RUN}/tables/binary",
    output:
        rows=f"{RUN}/summary/binary.csv",
    log:
        f"{RUN}/logs/binary_summary.log",
    benchmark:
        f"{RUN}/benchmarks/binary_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_binary"),
    shell:
        "afa summary binary {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"


rule calibration:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        tasks=f"{RUN}/tables/binary",
    output:
        tables=directory(f"{RUN}/tables/calibration"),
    log:
        f"{RUN}/logs/calibration.log",
    benchmark:
        f"{RUN}/benchmarks/calibration.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        rounds=comma_separated(settings.calibration.rounds),
        closure=CLOSURE,
        code=command_digest("experiment:experiment_calibration"),
    shell:
        "afa experiment calibration --bundle {input.bundle} --cohort {input.cohort} --tasks {input.tasks}"
        " --rounds {params.rounds} {params.closure} --threads {threads} --out {output.tables} > {log} 2>&1"


rule calibration_summary:
    input:
        tables=f"{RUN}/tables/calibration",
        tasks=f"{RUN}/tables/binary",
    output:
        rows=f"{RUN}/summary/calibration.csv",
    log:
        f"{RUN}/logs/calibration_summary.log",
    benchmark:
        f"{RUN}/benchmarks/calibration_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_calibration"),
    shell:
        "afa summary calibration {input.tables} --tasks {input.tasks} {params.resamples}"
        " --out {output.rows} > {log} 2>&1"


rule simulated_calibration:
    input:
        bundle=f"{RUN}/bundle",
    output:
        tables=directory(f"{RUN}/tables/simulated_calibration"),
    log:
        f"{RUN}/logs/simulated_calibration.log",
    benchmark:
        f"{RUN}/benchmarks/simulated_calibration.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        simulated=settings.calibration.simulated,
        solver=SOLVER,
        code=command_digest("experiment:experiment_simulated_calibration"),
    shell:
        "afa experiment simulated-calibration --bundle {input.bundle} --simulated {params.simulated}"
        " {params.solver} --threads {threads} --out {output.tables} > {log} 2>&1"


rule simulated_calibration_summary:
    input:
        tables=f"{RUN}/tables/simulated_calibration",
    output:
        rows=f"{RUN}/summary/simulated_calibration.csv",
    log:
        f"{RUN}/logs/simulated_calibration_summary.log",
    benchmark:
        f"{RUN}/benchmarks/simulated_calibration_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_simulated_calibration"),
    shell:
        "afa summary simulated-calibration {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"


rule elicitation_error:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/elicitation_error"),
    log:
        f"{RUN}/logs/elicitation_error.log",
    benchmark:
        f"{RUN}/benchmarks/elicitation_error.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        flips=comma_separated(settings.elicitation_error.flips),
        replicates=f"--replicates {settings.elicitation_error.replicates}",
        simulated=f"--simulated {settings.elicitation_error.simulated}",
        code=command_digest("experiment:experiment_elicitation_error"),
    shell:
        "afa experiment elicitation-error --bundle {input.bundle} --cohort {input.cohort} --flips {params.flips}"
        " {params.replicates} {params.simulated}"
        " --threads {threads} --out {output.tables} > {log} 2>&1"


rule elicitation_error_summary:
    input:
        tables=f"{RUN}/tables/elicitation_error",
    output:
        rows=f"{RUN}/summary/elicitation_error.csv",
    log:
        f"{RUN}/logs/elicitation_error_summary.log",
    benchmark:
        f"{RUN}/benchmarks/elicitation_error_summary.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        resamples=RESAMPLES,
        code=command_digest("summary:summary_elicitation_error"),
    shell:
        "afa summary elicitation-error {input.tables} {params.resamples} --out {output.rows} > {log} 2>&1"
