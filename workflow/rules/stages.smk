# Every stage of afa/paper/experiments: its tables and its rows of the summary, made by one job. Of a stage that is split by
# patients each shard makes a part of the tables, and that job joins them. Shards are folders and temporary, so that
# thousands of them are planned quickly.


# No function of a rule may look at the variables of the loop: it would see those of the last stage.
for name, stage in STAGES.items():
    summary = stage.summary or ()
    shown_by = (
        [] if stage.summary is None else [f"afa.paper.experiments.{name}:summarise"]
    )

    if is_split(name) and name != "allocation":

        rule:
            """Tables of a stage, of one part of the patients."""
            name:
                f"{name}_shard"
            input:
                **files_by_name(stage.inputs),
                kernels=ancient(COMPILED),
            output:
                tables=temp(directory(shard_folder(name))),
            log:
                f"{RUN}/logs/{name}_shard/{{shard}}.log",
            benchmark:
                f"{RUN}/benchmarks/{name}_shard/{{shard}}.tsv"
            group:
                f"shards_of_{name}"
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
                code=stage_digest(name, "run"),
            shell:
                "afa stage {params.stage} {params.inputs} {params.shard} --settings {params.settings:q}"
                " --threads {threads} --out {output.tables} > {log} 2>&1"

    if is_split(name):

        # What the shards read and run is named here too. Shards are temporary: of one that failed in a rerun nothing
        # is left that tells Snakemake so.
        rule:
            """Tables of a stage, joined of its shards, and its rows of the summary."""
            name:
                f"{name}_tables"
            input:
                **files_by_name(stage.beside),
                of_shards=[
                    *(
                        file
                        for read in stage.inputs
                        for file in (
                            [FILES[read]]
                            if isinstance(FILES[read], str)
                            else FILES[read]
                        )
                    ),
                    *(OWN_RULE_FILES if name == "allocation" else []),
                ],
                shards=shard_folders(name),
            output:
                tables=FILES[name],
                rows=rows_of(name),
            log:
                f"{RUN}/logs/{name}_tables.log",
            benchmark:
                f"{RUN}/benchmarks/{name}_tables.tsv"
            conda:
                ENVIRONMENT
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                stage=name,
                inputs=input_options,
                settings=settings_of(summary),
                of_shards=settings_of(stage.settings),
                contents=contents(OWN_RULE_FILES if name == "allocation" else []),
                code=code_of("afa.cli.stage:gather", *shown_by),
                code_of_shards=stage_digest(name, "run"),
                folder=folder_of_output("tables"),
                rows=rows_option,
            shell:
                "afa gather {params.stage} {input.shards} {params.inputs} --settings {params.settings:q}"
                " --out {params.folder} {params.rows} > {log} 2>&1"

    else:

        rule:
            """Tables of a stage, and its rows of the summary."""
            name:
                f"{name}_tables"
            input:
                **files_by_name(dict.fromkeys([*stage.inputs, *stage.beside])),
                kernels=ancient(COMPILED),
            output:
                tables=FILES[name],
                rows=rows_of(name),
            log:
                f"{RUN}/logs/{name}_tables.log",
            benchmark:
                f"{RUN}/benchmarks/{name}_tables.tsv"
            priority: int(name in BEGUN_FIRST)
            retries: 0 if name in GATES else None
            conda:
                ENVIRONMENT
            threads: 1
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                stage=name,
                inputs=input_options,
                settings=settings_of([*stage.settings, *summary]),
                contents=contents(sources_of(stage)),
                code=code_of(
                    "afa.cli.stage:stage",
                    f"afa.paper.experiments.{name}:run",
                    *shown_by,
                ),
                folder=folder_of_output("tables"),
                rows=rows_option,
            shell:
                "afa stage {params.stage} {params.inputs} --settings {params.settings:q}"
                " --threads {threads} --out {params.folder} {params.rows} > {log} 2>&1"


if "allocation" not in LEFT_OUT:

    include: "allocation.smk"
