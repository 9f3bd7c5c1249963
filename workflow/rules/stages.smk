# Every stage of afa/stages: its tables, in shards where it has them, and its rows of the summary.
# Stages whose tables are made by rules of their own: in allocation.smk, and below.
BY_HAND = ("allocation", "elicitation_health")
# Begun first: they do without the walk, which takes the first job of a new installation a minute to compile.
WITHOUT_WALK = ("gauge", "accurate", "elicitation_error")


# No function of a rule may look at the variables of the loop: it would see those of the last stage.
for name, stage in STAGES.items():
    job = f"{name}_shard" if stage.sharded else name
    part = f"{job}/{{shard}}" if stage.sharded else job
    made = f"{RUN}/shards/{name}/{{shard}}" if stage.sharded else f"{RUN}/tables/{name}"

    if name not in BY_HAND:

        rule:
            name:
                job
            input:
                **tables_of(stage.inputs),
                kernels=ancient(COMPILED),
            output:
                tables=temp(directory(made)) if stage.sharded else directory(made),
            log:
                f"{RUN}/logs/{part}.log",
            benchmark:
                f"{RUN}/benchmarks/{part}.tsv"
            priority: int(name in WITHOUT_WALK)
            group:
                f"shards_of_{name}" if stage.sharded else name
            conda:
                ENVIRONMENT
            threads: 1
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                stage=name,
                inputs=input_options,
                shard=shard_option,
                settings=settings_of(stage.settings),
                code=CODE.stage(name, "run"),
            shell:
                "afa stage {params.stage} {params.inputs} {params.shard} --settings {params.settings:q}"
                " --threads {threads} --out {output.tables} > {log} 2>&1"

    if stage.sharded and name not in BY_HAND:

        rule:
            name:
                name
            input:
                shards=expand(made, shard=SHARDS),
            output:
                tables=directory(f"{RUN}/tables/{name}"),
            log:
                f"{RUN}/logs/{name}.log",
            benchmark:
                f"{RUN}/benchmarks/{name}.tsv"
            group:
                name
            conda:
                ENVIRONMENT
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                code=command_digest("stage:gather"),
            shell:
                "afa gather {input.shards} --out {output.tables} > {log} 2>&1"

    if stage.summary is not None:

        rule:
            name:
                f"{name}_summary"
            input:
                **tables_of(stage.beside),
                tables=f"{RUN}/tables/{name}",
            output:
                rows=f"{RUN}/curves/{name}.parquet",
            log:
                f"{RUN}/logs/{name}_summary.log",
            benchmark:
                f"{RUN}/benchmarks/{name}_summary.tsv"
            group:
                name
            conda:
                ENVIRONMENT
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                stage=name,
                inputs=input_options,
                settings=settings_of(stage.summary),
                code=CODE.stage(name, "summarise"),
            shell:
                "afa summarise {params.stage} {input.tables} {params.inputs} --settings {params.settings:q}"
                " --out {output.rows} > {log} 2>&1"


if "allocation" not in LEFT_OUT:

    include: "allocation.smk"


# The elicitation's health: its answers against each other, where they are ours, and its signs against the data.
OF_STUDY = {}
if OWN_BUNDLE is None:
    OF_STUDY = {
        "study": ancient(STUDY),
        "files": STUDY_FILES,
        "answers": RECORD_FILES,
        "unary": f"{RUN}/elicitation/unary",
        "pairwise": f"{RUN}/elicitation/pairwise",
    }


rule elicitation_health:
    input:
        **OF_STUDY,
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
    output:
        tables=directory(f"{RUN}/tables/elicitation_health"),
    log:
        f"{RUN}/logs/elicitation_health.log",
    benchmark:
        f"{RUN}/benchmarks/elicitation_health.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        record=lambda wildcards, input: (
            f"--input study={shlex.quote(str(input.study))} --input record={shlex.quote(str(RECORD))}"
            f" --input unary={input.unary} --input pairwise={input.pairwise}"
            if OF_STUDY
            else ""
        ),
        settings=settings_of(STAGES["elicitation_health"].settings),
        code=CODE.stage("elicitation_health", "run"),
    shell:
        "afa stage elicitation_health --bundle {input.bundle} --cohort {input.cohort} {params.record}"
        " --settings {params.settings:q} --out {output.tables} > {log} 2>&1"
