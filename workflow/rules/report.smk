# What a reader sees: the summary, the figures, and the report made of them.
SUMMARISED = [name for name, stage in STAGES.items() if stage.summary is not None]
SUMMARISED += [*([] if "errata" in LEFT_OUT else ["errata"]), *BASELINE_STAGES]


rule summary:
    input:
        parts=expand(f"{RUN}/curves/{{stage}}.parquet", stage=SUMMARISED),
    output:
        f"{RUN}/summary.csv",
    log:
        f"{RUN}/logs/summary.log",
    benchmark:
        f"{RUN}/benchmarks/summary.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("stage:join"),
    shell:
        "afa join {input.parts} --out {output} > {log} 2>&1"


# One notebook per part of the paper: what it reads of the run, and where its figure stands in the report.
NOTEBOOKS = {
    "comparison": {
        "category": "Comparison",
        "figure": "verdicts by table",
        "reads": ["comparison", "bundle"],
    },
    "cohort": {
        "category": "Inputs",
        "figure": "patients, encoding and labels",
        "reads": ["bundle"],
    },
    "bundle": {
        "category": "Inputs",
        "figure": "supports, couplings and distances",
        "reads": ["bundle"],
    },
    "sign_convergence": {
        "category": "Top-k identification",
        "figure": "sign accuracy under random order",
        "reads": ["curves/sign.parquet"],
    },
    "chaos": {
        "category": "Top-k identification",
        "figure": "chaotic patients",
        "reads": ["curves/chaos.parquet"],
    },
    "layer0": {
        "category": "Top-k identification",
        "figure": "Layer 0",
        "reads": [
            "curves/layer0.parquet",
            "curves/layer0_synthetic.parquet",
            "tables/layer0",
            "tables/layer0_synthetic",
        ],
    },
    "allocation": {
        "category": "Top-k identification",
        "figure": "allocation rules: sign accuracy",
        "reads": ["curves/allocation.parquet"],
    },
    "decision_quality": {
        "category": "Top-k identification",
        "figure": "precision of the top k",
        "reads": ["curves/allocation.parquet"],
    },
    "acquisition": {
        "category": "Top-k identification",
        "figure": "certainty and measurements saved",
        "reads": ["curves/allocation.parquet"],
    },
    "layer1": {
        "category": "Top-k identification",
        "figure": "duels resolved along the way",
        "reads": ["curves/layer1.parquet", "curves/allocation.parquet"],
    },
    "stopping": {
        "category": "Top-k identification",
        "figure": "rules of stopping and their errors",
        "reads": ["curves/stopping.parquet"],
    },
    "binary": {
        "category": "Binary classification",
        "figure": "accuracy under random and informed orders",
        "reads": ["curves/binary.parquet"],
    },
    "calibration": {
        "category": "Binary classification",
        "figure": "reliability of the probability",
        "reads": [
            "curves/calibration.parquet",
            "curves/simulated_calibration.parquet",
            "tables/calibration",
            "tables/simulated_calibration",
        ],
    },
    "gauge": {
        "category": "Binary classification",
        "figure": "the closure against the true gauge",
        "reads": ["curves/gauge.parquet"],
    },
    "labels": {
        "category": "Past the paper",
        "figure": "labels, by reference and coupling",
        "reads": ["curves/labels.parquet"],
    },
    "ranking": {
        "category": "Past the paper",
        "figure": "rankings by scale and by method",
        "reads": ["curves/ranking.parquet"],
    },
    "accurate": {
        "category": "Past the paper",
        "figure": "decisions that mean-field changes",
        "reads": ["curves/accurate.parquet"],
    },
    "elicitation_health": {
        "category": "Checks",
        "figure": "health of the elicitation",
        "reads": ["curves/elicitation_health.parquet", "tables/elicitation_health"],
    },
    "inference": {
        "category": "Checks",
        "figure": "quality of inference",
        "reads": ["tables/sanity", "tables/sign", "tables/calibration"],
    },
    "sanity": {
        "category": "Checks",
        "figure": "acceptance tests",
        "reads": ["tables/sanity"],
    },
    "errata": {
        "category": "Checks",
        "figure": "errata of the paper",
        "reads": ["tables/errata"],
    },
}

# A stage's own figure, last of its chapter.
for name, stage in STAGES.items():
    if stage.figure:
        NOTEBOOKS[name] = {
            "category": stage.figure[0],
            "figure": stage.figure[1],
            "reads": [
                *([] if stage.summary is None else [f"curves/{name}.parquet"]),
                f"tables/{name}",
            ],
        }

# Figures whose tables this run does not have are left out, and the report says why.
for name, page in dict(NOTEBOOKS).items():
    lacking = [
        LEFT_OUT[stage]
        for stage in (Path(part).stem for part in page["reads"])
        if stage in LEFT_OUT
    ]
    if lacking:
        LEFT_OUT.setdefault(name, lacking[0])
        del NOTEBOOKS[name]

for name, page in NOTEBOOKS.items():

    rule:
        name:
            f"{name}_notebook"
        input:
            notebook=home(f"notebooks/{name}.ipynb"),
            cohort=f"{RUN}/cohort",
            paper=ancient(home("resources/paper")),
            tables=PAPER_TABLES,
            reads=[f"{RUN}/{part}" for part in page["reads"]],
        output:
            notebook=f"{RUN}/notebooks/{name}.ipynb",
        log:
            f"{RUN}/logs/{name}_notebook.log",
        benchmark:
            f"{RUN}/benchmarks/{name}_notebook.tsv"
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            run=subpath(input.cohort, parent=True),
            code=notebook_code(home(f"notebooks/{name}.ipynb")),
        shell:
            "afa notebook {input.notebook} --out {output.notebook}"
            " -p run={params.run} -p paper={input.paper} > {log} 2>&1"


# The tables for readers, each as CSV and Parquet, with the units of every column.
rule published:
    input:
        summary=f"{RUN}/summary.csv",
        cohort=f"{RUN}/cohort",
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
        stages=expand(
            f"{RUN}/tables/{{stage}}",
            stage=[
                *SUMMARISED,
                *(name for name, stage in STAGES.items() if stage.summary is None),
            ],
        ),
    output:
        directory(f"{RUN}/published"),
    log:
        f"{RUN}/logs/published.log",
    benchmark:
        f"{RUN}/benchmarks/published.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        stages=lambda wildcards, input: " ".join(
            f"--stage {stage}" for stage in input.stages
        ),
        paper="" if TABLE else f"--paper {home('resources/paper')}",
        code=command_digest("report:publish_tables"),
    shell:
        "afa publish {input.summary} --cohort {input.cohort} {params.paper} {params.stages}"
        " --out {output} > {log} 2>&1"


REPORTED = [
    *([] if "comparison" in LEFT_OUT else [f"{RUN}/comparison"]),
    *([] if "allocation" in LEFT_OUT else [f"{RUN}/explorer.html"]),
    f"{RUN}/published",
    *expand(f"{RUN}/notebooks/{{name}}.ipynb", name=NOTEBOOKS),
]


# The settings of this run, complete and checked: what makes its numbers, beside them.
rule run_config:
    output:
        f"{RUN}/config.json",
    log:
        f"{RUN}/logs/run_config.log",
    benchmark:
        f"{RUN}/benchmarks/run_config.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        settings=settings.model_dump_json(indent=1),
    shell:
        "printf '%s\\n' {params.settings:q} > {output} 2> {log}"


# How every figure and table was made: the workflow's own records of the jobs behind them.
rule provenance:
    input:
        results=REPORTED,
        config=f"{RUN}/config.json",
        lock=home("envs/requirements.lock"),
    output:
        f"{RUN}/provenance.json",
    log:
        f"{RUN}/logs/provenance.log",
    benchmark:
        f"{RUN}/benchmarks/provenance.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("report:record_provenance"),
    shell:
        "afa provenance {input.results} {input.config} --records .snakemake --lock {input.lock}"
        " --out {output} > {log} 2>&1"


# What opens the report of a field that is read by its own bundle.
MEASURED = [f"{RUN}/tables/league"] if FIELD and not settings.bundle else []


# The report: one page made of the finished run and of the project's own texts.
rule report_page:
    input:
        results=REPORTED,
        measured=MEASURED,
        cohort=f"{RUN}/cohort",
        bundle=f"{RUN}/bundle",
        config=f"{RUN}/config.json",
        provenance=f"{RUN}/provenance.json",
        paper=collect(home("resources/paper/{name}"), name=["claims.csv"]),
        carried=files_of(home("resources/paper"), "carried/*.yaml"),
        docs=collect(
            home("docs/{name}.md"), name=["decisions", "errata", "past_the_paper"]
        ),
    output:
        page=f"{RUN}/report.html",
        readme=f"{RUN}/README.md",
    log:
        f"{RUN}/logs/report_page.log",
    benchmark:
        f"{RUN}/benchmarks/report_page.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        run=subpath(input.cohort, parent=True),
        paper=lambda wildcards, input: Path(input.paper[0]).parent,
        docs=lambda wildcards, input: Path(input.docs[0]).parent,
        parts=[
            f"--part={name}={page['category']}: {page['figure']}"
            for name, page in NOTEBOOKS.items()
        ],
        left_out=[f"--left-out={name}={reason}" for name, reason in LEFT_OUT.items()],
        measured=lambda wildcards, input: " ".join(
            f"--measured {path}" for path in input.measured
        ),
        code=command_digest("report:report_page")
        + template_digest("report.*")
        + template_digest("league_tables.*")
        + template_digest("run.md")
        + template_digest("notebook.*"),
    shell:
        "afa report {params.run} --paper {params.paper} --docs {params.docs}"
        " {params.parts:q} {params.left_out:q} {params.measured} --out {output.page} --readme {output.readme} > {log} 2>&1"


# Snakemake's own report of the same jobs: the graph of rules, their code, their times.
rule workflow_report:
    input:
        results=REPORTED,
        config=f"{RUN}/config.json",
        text=collect(
            home("workflow/report/{name}.rst"),
            name=["workflow"],
        ),
    output:
        f"{RUN}/workflow.html",
    log:
        f"{RUN}/logs/workflow_report.log",
    benchmark:
        f"{RUN}/benchmarks/workflow_report.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        snakefile=os.path.relpath(workflow.main_snakefile),
    shell:
        "snakemake --snakefile {params.snakefile:q} --nolock --cores 1 --profile none --workflow-profile none --configfile {input.config}"
        " --report {output} -- {input.results} > {log} 2>&1"
