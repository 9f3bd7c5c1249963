# The baselines are experiments in which language models, not the planner, make the decisions about patients.
# The answers of the models have one of three sources: the project's recorded answers, answers that the user has
# recorded, or a live run, which requests answers from a model.
# The project contains recorded answers of two experiments. In llm_baselines, the planner chooses which features are
# observed. In llm_choosing, the language model chooses.
BASELINES = language_models(settings, Path(home(".")))

if BASELINES:
    from afa.paper.baselines import BASELINE_TABLES, prompt_digests
    from afa.model.study import MODEL, study_files

for name, asked in BASELINES.items():
    FILES[name] = tables_in(f"{RUN}/tables/{name}", BASELINE_TABLES)
    PLANNED_STUDY = here_or_home(asked.study)
    STUDY_OF_BASELINES = files_of(
        PLANNED_STUDY,
        *(path.name for path in study_files(PLANNED_STUDY).values()),
        "keywords.csv",
    )
    # In a live run the folder of recorded answers is not an input, because new answers must not make the job run again.
    ANSWERS = [] if asked.live else files_of(asked.folder, "*.jsonl", "retrieved/**/*")

    rule:
        """Decisions of language models that plan, compared with the planner, and their rows of the summary."""
        name:
            f"{name}_tables"
        input:
            bundle=FILES["bundle"],
            cohort=FILES["cohort"],
            study=STUDY_OF_BASELINES,
            answers=ANSWERS,
        output:
            tables=FILES[name],
            rows=f"{RUN}/curves/{name}.parquet",
        log:
            f"{RUN}/logs/{name}_tables.log",
        benchmark:
            f"{RUN}/benchmarks/{name}_tables.tsv"
        retries: 0
        conda:
            ENVIRONMENT
        threads: 1
        resources:
            mem_mb=memory,
            runtime=minutes,
            # Caps and prices are not parameters of this rule, because they do not affect the answers.
            terms=f"--live {asked.terms}" if asked.live else "",
        params:
            bundle=folder_of_input("bundle"),
            cohort=folder_of_input("cohort"),
            folder=folder_of_output("tables"),
            record=f"--record={asked.folder}",
            asked=asked.asked,
            k=f"--k {settings.top_k}",
            solver=SOLVER,
            contents=contents(STUDY_OF_BASELINES, ANSWERS),
            summary=f"--table {name} {RESAMPLES} --prompt-price {asked.prompt_price} --answer-price {asked.answer_price}",
            code=command_digest("stage:experiment_baselines", prompt_digests()),
            summary_code=command_digest("stage:summary_baselines"),
            live=(
                f"live, {asked.model or os.environ.get(MODEL, 'no model')}"
                if asked.live
                else ""
            ),
        shell:
            "afa experiment baselines --bundle {params.bundle} --cohort {params.cohort} {params.record:q}"
            " --settings {params.asked:q} {resources.terms} {params.k} {params.solver} --threads {threads}"
            " --out {params.folder} > {log} 2>&1\n"
            "afa summary baselines {params.folder} {params.summary} --out {output.rows} >> {log} 2>&1"
