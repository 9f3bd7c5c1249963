# Language models that plan by themselves: by answers that the project carries, by a record, or live.
BASELINES = language_models(settings, Path(home(".")))
BASELINE_STAGES = [] if BASELINES.folder is None else ["llm_baselines"]

if BASELINES.folder is not None:
    from afa.baselines import prompt_digests
    from afa.elicit.study import MODEL, study_files

    PLANNED_STUDY = here_or_home(BASELINES.study)

    rule llm_baselines:
        input:
            bundle=f"{RUN}/bundle",
            cohort=f"{RUN}/cohort",
            study=files_of(
                PLANNED_STUDY,
                *(path.name for path in study_files(PLANNED_STUDY).values()),
                "keywords.csv",
            ),
            # A live run adds to the record, which must not call for another run.
            answers=(
                []
                if BASELINES.live
                else files_of(BASELINES.folder, "*.jsonl", "retrieved/**/*")
            ),
        output:
            tables=directory(f"{RUN}/tables/llm_baselines"),
        log:
            f"{RUN}/logs/llm_baselines.log",
        benchmark:
            f"{RUN}/benchmarks/llm_baselines.tsv"
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
            record=f"--record={BASELINES.folder}",
            asked=BASELINES.asked,
            k=f"--k {settings.top_k}",
            solver=SOLVER,
            code=command_digest("stage:experiment_baselines", prompt_digests()),
            live=(
                f"live, {BASELINES.model or os.environ.get(MODEL, 'no model')}"
                if BASELINES.live
                else ""
            ),
        shell:
            "afa experiment baselines --bundle {input.bundle} --cohort {input.cohort} {params.record:q}"
            " --settings {params.asked:q} {resources.terms} {params.k} {params.solver} --threads {threads}"
            " --out {output.tables} > {log} 2>&1"

    rule llm_baselines_summary:
        input:
            tables=f"{RUN}/tables/llm_baselines",
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
            resamples=RESAMPLES,
            prompt_price=f"--prompt-price {BASELINES.prompt_price}",
            answer_price=f"--answer-price {BASELINES.answer_price}",
            code=command_digest("stage:summary_baselines"),
        shell:
            "afa summary baselines {input.tables} {params.resamples} {params.prompt_price} {params.answer_price}"
            " --out {output.rows} > {log} 2>&1"
