# Language models that plan by themselves: by answers that the project carries, by a record, or live.
BASELINES = language_models(settings, Path(home(".")))
BASELINE_STAGES = [] if BASELINES.folder is None else ["llm_baselines"]

if BASELINES.folder is not None:
    from afa.paper.baselines import prompt_digests
    from afa.paper.baselines.stage import TABLES as BASELINE_TABLES
    from afa.model.study import MODEL, study_files

    FILES["llm_baselines"] = tables_in(f"{RUN}/tables/llm_baselines", BASELINE_TABLES)

    PLANNED_STUDY = here_or_home(BASELINES.study)
    STUDY_OF_BASELINES = files_of(
        PLANNED_STUDY,
        *(path.name for path in study_files(PLANNED_STUDY).values()),
        "keywords.csv",
    )
    # A live run adds to the record, which must not call for another run.
    ANSWERS_OF_BASELINES = (
        []
        if BASELINES.live
        else files_of(BASELINES.folder, "*.jsonl", "retrieved/**/*")
    )

    rule llm_baselines_tables:
        """What language models decide that plan by themselves, beside the planner."""
        input:
            bundle=FILES["bundle"],
            cohort=FILES["cohort"],
            study=STUDY_OF_BASELINES,
            answers=ANSWERS_OF_BASELINES,
        output:
            tables=FILES["llm_baselines"],
        log:
            f"{RUN}/logs/llm_baselines_tables.log",
        benchmark:
            f"{RUN}/benchmarks/llm_baselines_tables.tsv"
        retries: 0
        conda:
            ENVIRONMENT
        threads: 1
        resources:
            mem_mb=memory,
            runtime=minutes,
            # Caps and prices are no parameters of this rule: another cap makes no other answers.
            terms=f"--live {BASELINES.terms}" if BASELINES.live else "",
        params:
            bundle=folder_of_input("bundle"),
            cohort=folder_of_input("cohort"),
            folder=folder_of_output("tables"),
            record=f"--record={BASELINES.folder}",
            asked=BASELINES.asked,
            k=f"--k {settings.top_k}",
            solver=SOLVER,
            contents=contents(STUDY_OF_BASELINES, ANSWERS_OF_BASELINES),
            code=command_digest("stage:experiment_baselines", prompt_digests()),
            live=(
                f"live, {BASELINES.model or os.environ.get(MODEL, 'no model')}"
                if BASELINES.live
                else ""
            ),
        shell:
            "afa experiment baselines --bundle {params.bundle} --cohort {params.cohort} {params.record:q}"
            " --settings {params.asked:q} {resources.terms} {params.k} {params.solver} --threads {threads}"
            " --out {params.folder} > {log} 2>&1"

    rule llm_baselines_summary:
        """Rows of the summary about language models that plan by themselves."""
        input:
            tables=FILES["llm_baselines"],
        output:
            rows=f"{RUN}/curves/llm_baselines.parquet",
        log:
            f"{RUN}/logs/llm_baselines_summary.log",
        benchmark:
            f"{RUN}/benchmarks/llm_baselines_summary.tsv"
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            folder=folder_of_input("tables"),
            resamples=RESAMPLES,
            prompt_price=f"--prompt-price {BASELINES.prompt_price}",
            answer_price=f"--answer-price {BASELINES.answer_price}",
            code=command_digest("stage:summary_baselines"),
        shell:
            "afa summary baselines {params.folder} {params.resamples} {params.prompt_price} {params.answer_price}"
            " --out {output.rows} > {log} 2>&1"
