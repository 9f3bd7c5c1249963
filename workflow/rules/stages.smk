# For every stage of afa/paper/experiments, one job makes the tables and the rows of the summary.
# If a stage is split into shards of patients, one job for each shard makes tables for its patients.
# Another job joins the tables of all shards, and a last job makes the rows of the summary.
# The output of a shard is one temporary folder, so that Snakemake plans thousands of shards quickly.


# Functions in these rules must not use the loop variables, which have the values of the last stage when Snakemake runs.
for name, stage in STAGES.items():
    summary = stage.summary_settings or ()
    summarised = [] if stage.summary_settings is None else ["summarise"]

    if is_split(name) and name != "allocation":

        rule:
            """Tables of a stage, for one shard of the patients."""
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
                code=stage_digest(name, "stage", "run"),
            shell:
                "afa stage {params.stage} {params.inputs} {params.shard} --settings {params.settings:q}"
                " --threads {threads} --out {output.tables} > {log} 2>&1"

    if is_split(name):

        # Shards are deleted after use, so Snakemake cannot compare them with their inputs. This rule therefore also
        # declares the inputs and the code of the shards. If a shard fails in a rerun, it then runs again.
        rule:
            """Tables of a stage, joined from its shards."""
            name:
                f"{name}_tables"
            input:
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
                of_shards=settings_of(stage.settings),
                contents=contents(OWN_RULE_FILES if name == "allocation" else []),
                code=stage_digest(name, "gather"),
                code_of_shards=stage_digest(name, "stage", "run"),
                folder=folder_of_output("tables"),
            shell:
                "afa gather {params.stage} {input.shards} --out {params.folder} > {log} 2>&1"

        # A separate job makes the rows of the summary. If only bootstrap settings change, only this job runs again, and
        # not the jobs of the shards.
        rule:
            """Rows of the summary, from the tables of a stage."""
            name:
                f"{name}_rows"
            input:
                **files_by_name(stage.summary_inputs),
                tables=FILES[name],
            output:
                rows=rows_of(name),
            log:
                f"{RUN}/logs/{name}_rows.log",
            benchmark:
                f"{RUN}/benchmarks/{name}_rows.tsv"
            conda:
                ENVIRONMENT
            resources:
                mem_mb=memory,
                runtime=minutes,
            params:
                stage=name,
                inputs=input_options,
                settings=settings_of(summary),
                code=stage_digest(name, "summarise", "summarise"),
                folder=folder_of_input("tables"),
            shell:
                "afa summarise {params.stage} {params.folder} {params.inputs} --settings {params.settings:q}"
                " --out {output.rows} > {log} 2>&1"

    else:

        rule:
            """Tables of a stage, and its rows of the summary."""
            name:
                f"{name}_tables"
            input:
                **files_by_name(dict.fromkeys([*stage.inputs, *stage.summary_inputs])),
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
                code=stage_digest(name, "stage", "run", *summarised),
                folder=folder_of_output("tables"),
                rows=rows_option,
            shell:
                "afa stage {params.stage} {params.inputs} --settings {params.settings:q}"
                " --threads {threads} --out {params.folder} {params.rows} > {log} 2>&1"


if "allocation" not in SKIPPED:

    include: "allocation.smk"
