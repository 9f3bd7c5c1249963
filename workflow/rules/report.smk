# These rules make the files for readers: the summary, the figures, and the report.

SUMMARISED = [
    name for name, stage in STAGES.items() if stage.summary_settings is not None
]
SUMMARISED += BASELINES


rule summary:
    """The numbers of a run, one on each line."""
    input:
        parts=expand(f"{RUN}/curves/{{stage}}.parquet", stage=SUMMARISED),
    output:
        f"{RUN}/summary.csv",
    log:
        f"{RUN}/logs/summary.log",
    benchmark:
        f"{RUN}/benchmarks/summary.tsv"
    retries: 0
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


# NOTEBOOKS lists, for each notebook, its chapter and title in the report, and the files of the run that it reads.
# There is one notebook for each part of the paper.
NOTEBOOKS = {
    "comparison": ("Comparison", "verdicts by table", ["comparison", "bundle"]),
    "cohort": ("Inputs", "patients, encoding and labels", ["bundle"]),
    "bundle": ("Inputs", "supports, couplings and distances", ["bundle"]),
    "sign_convergence": (
        "Top-k identification",
        "sign accuracy under random order",
        ["curves/sign.parquet"],
    ),
    "chaos": ("Top-k identification", "chaotic patients", ["curves/chaos.parquet"]),
    "layer0": (
        "Top-k identification",
        "Layer 0",
        [
            "curves/layer0.parquet",
            "curves/layer0_synthetic.parquet",
            "tables/layer0",
            "tables/layer0_synthetic",
        ],
    ),
    "allocation": (
        "Top-k identification",
        "allocation rules: sign accuracy",
        ["curves/allocation.parquet"],
    ),
    "decision_quality": (
        "Top-k identification",
        "precision of the top k",
        ["curves/allocation.parquet"],
    ),
    "acquisition": (
        "Top-k identification",
        "certainty and measurements saved",
        ["curves/allocation.parquet"],
    ),
    "layer1": (
        "Top-k identification",
        "duels resolved along the way",
        ["curves/layer1.parquet", "curves/allocation.parquet"],
    ),
    "stopping": (
        "Top-k identification",
        "rules of stopping and their errors",
        ["curves/stopping.parquet"],
    ),
    "binary": (
        "Binary classification",
        "accuracy under random and informed orders",
        ["curves/binary.parquet"],
    ),
    "calibration": (
        "Binary classification",
        "reliability of the probability",
        [
            "curves/calibration.parquet",
            "tables/calibration",
        ],
    ),
    "gauge": (
        "Binary classification",
        "the closure against the true gauge",
        ["curves/gauge.parquet"],
    ),
    "labels": (
        "Past the paper",
        "labels, by reference and coupling",
        ["curves/labels.parquet"],
    ),
    "accurate": (
        "Past the paper",
        "decisions that mean-field changes",
        ["curves/accurate.parquet"],
    ),
    "inference": (
        "Checks",
        "quality of inference",
        ["tables/sanity", "tables/sign", "tables/calibration"],
    ),
    "sanity": ("Checks", "acceptance tests", ["tables/sanity"]),
}

# The report shows the figure of a stage at the end of the stage's chapter.
for name, stage in STAGES.items():
    if stage.figure:
        rows = [] if stage.summary_settings is None else [f"curves/{name}.parquet"]
        NOTEBOOKS[name] = (*stage.figure, [*rows, f"tables/{name}"])

if "llm_choosing" in BASELINES:
    NOTEBOOKS["choosing"] = (
        "Top-k identification",
        "a language model that chooses its own features",
        ["curves/llm_choosing.parquet"],
    )

# If this run does not make the tables of a figure, the report gives the reason instead of the figure.
for name, (_, _, reads) in dict(NOTEBOOKS).items():
    lacking = [Path(part).stem for part in reads if Path(part).stem in SKIPPED]
    if lacking:
        SKIPPED.setdefault(name, SKIPPED[lacking[0]])
        del NOTEBOOKS[name]

for name, (chapter, title, reads) in NOTEBOOKS.items():

    rule:
        """A figure notebook, run on the tables of this run."""
        name:
            f"{name}_notebook"
        input:
            notebook=home(f"notebooks/{name}.ipynb"),
            cohort=FILES["cohort"],
            paper=ancient(home("resources/paper")),
            tables=shown_in(name),
            reads=[file for part in reads for file in files_of_part(part)],
        output:
            notebook=f"{RUN}/notebooks/{name}.ipynb",
            pdf=report(
                f"{RUN}/figures/{name}.pdf",
                caption="../report/figure.rst",
                category=chapter,
                labels={"figure": title, "form": "PDF"},
            ),
            svg=report(
                f"{RUN}/figures/{name}.svg",
                caption="../report/figure.rst",
                category=chapter,
                labels={"figure": title, "form": "SVG"},
            ),
        log:
            f"{RUN}/logs/{name}_notebook.log",
        benchmark:
            f"{RUN}/benchmarks/{name}_notebook.tsv"
        group:
            "pages"
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            run=run_folder,
            contents=contents(home(f"notebooks/{name}.ipynb"), shown_in(name)),
            figure=subpath(output.svg, strip_suffix=".svg"),
            caption=notebook_caption(home(f"notebooks/{name}.ipynb")),
            confidence=confidence_option(home(f"notebooks/{name}.ipynb")),
            code=notebook_code(home(f"notebooks/{name}.ipynb")),
        shell:
            "afa notebook {input.notebook} --out {output.notebook}"
            " -p run={params.run} -p paper={input.paper} -p figure={params.figure}"
            " {params.confidence} > {log} 2>&1"


# This rule writes CSV tables for readers, and a table with the unit of every column.
FILES["published"] = [
    f"{RUN}/published/{name}.csv"
    for name in [declared.DICTIONARY, *([] if TABLE else PRINTED_TABLES)]
]


rule published:
    """The tables for readers, and the dictionary of all columns."""
    input:
        summary=f"{RUN}/summary.csv",
        cohort=FILES["cohort"],
        paper=ancient(home("resources/paper")),
        tables=PAPER_TABLES,
        stages=[file for name in [*STAGES, *BASELINES] for file in FILES[name]],
    output:
        tables=FILES["published"],
    log:
        f"{RUN}/logs/published.log",
    benchmark:
        f"{RUN}/benchmarks/published.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        cohort=folder_of_input("cohort"),
        folder=folder_of_output("tables"),
        stages=lambda wildcards, input: " ".join(
            f"--stage {folder}"
            for folder in dict.fromkeys(map(os.path.dirname, input.stages))
        ),
        paper="" if TABLE else f"--paper {home('resources/paper')}",
        contents=contents(PAPER_TABLES),
        code=command_digest(
            "report:publish_tables",
            sha256_of(PACKAGE / "paper" / "experiments" / "columns.csv")[
                :DIGEST_LENGTH
            ],
        ),
    shell:
        "afa publish {input.summary} --cohort {params.cohort} {params.paper} {params.stages}"
        " --out {params.folder} > {log} 2>&1"


REPORTED = [
    *([] if "comparison" in SKIPPED else FILES["comparison"]),
    *([] if "allocation" in SKIPPED else [f"{RUN}/explorer.html"]),
    *FILES["published"],
    *expand(f"{RUN}/notebooks/{{name}}.ipynb", name=NOTEBOOKS),
    *expand(f"{RUN}/figures/{{name}}.{{form}}", name=NOTEBOOKS, form=["pdf", "svg"]),
]


# This rule writes the complete, checked settings of the run, which determine the numbers of the run.
rule run_config:
    """The settings of this run, complete and checked."""
    output:
        f"{RUN}/config.json",
    log:
        f"{RUN}/logs/run_config.log",
    benchmark:
        f"{RUN}/benchmarks/run_config.tsv"
    retries: 0
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


# This rule writes the origin of every figure and table, from the workflow's records of jobs.
rule provenance:
    """The origin of every result: the jobs behind it, and their inputs."""
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
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        contents=contents(home("envs/requirements.lock")),
        code=command_digest("report:record_provenance"),
    shell:
        "afa provenance {input.results} {input.config} --records .snakemake --lock {input.lock}"
        " --out {output} > {log} 2>&1"


# If a run uses a labelled data set and the bundle made from it, the report begins with the accuracy of feature
# acquisition on this data set.
MEASURED_BY = ["league"] if FIELD and not settings.bundle else []
MEASURED = [file for name in MEASURED_BY for file in FILES[name]]


# This rule writes the report, a single page, from the finished run and the project's documents.
rule report_page:
    """The report: one page about the whole run."""
    input:
        results=REPORTED,
        summary=f"{RUN}/summary.csv",
        measured=MEASURED,
        cohort=FILES["cohort"],
        bundle=FILES["bundle"],
        config=f"{RUN}/config.json",
        provenance=f"{RUN}/provenance.json",
        paper=collect(
            home("resources/paper/{name}"), name=["claims.csv", "hyperparams.csv"]
        ),
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
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        run=run_folder,
        paper=lambda wildcards, input: Path(input.paper[0]).parent,
        docs=lambda wildcards, input: Path(input.docs[0]).parent,
        parts=[
            f"--part={name}={chapter}: {title}"
            for name, (chapter, title, _) in NOTEBOOKS.items()
        ],
        left_out=[f"--left-out={name}={reason}" for name, reason in SKIPPED.items()],
        measured=lambda wildcards, input: (
            f"--measured {folder_of(input.measured)}" if input.measured else ""
        ),
        contents=contents(
            home("resources/paper/claims.csv"),
            home("resources/paper/hyperparams.csv"),
            files_of(home("resources/paper"), "carried/*.yaml"),
            [
                home(f"docs/{name}.md")
                for name in ("decisions", "errata", "past_the_paper")
            ],
        ),
        code=command_digest(
            "report:report_page",
            template_digest("report.*")
            + template_digest("league_tables.*")
            + template_digest("run.md")
            + template_digest("notebook.*"),
        ),
    shell:
        "afa report {params.run} --paper {params.paper} --docs {params.docs}"
        " {params.parts:q} {params.left_out:q} {params.measured} --out {output.page} --readme {output.readme} > {log} 2>&1"


# Snakemake's built-in report shows the graph of rules, their code and the times of jobs.
rule workflow_report:
    """Snakemake's own report of the same jobs."""
    input:
        results=REPORTED,
        config=f"{RUN}/config.json",
        text=collect(
            home("workflow/report/{name}.rst"),
            name=["workflow", "figure"],
        ),
    output:
        f"{RUN}/workflow.html",
    log:
        f"{RUN}/logs/workflow_report.log",
    benchmark:
        f"{RUN}/benchmarks/workflow_report.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        # Snakemake does not check whether a param that is a function of `input` has changed. Therefore this page is not
        # written again if only the path of the Snakefile changes.
        snakefile=lambda wildcards, input: os.path.relpath(workflow.main_snakefile),
    shell:
        "snakemake --snakefile {params.snakefile:q} --nolock --cores 1 --profile none --workflow-profile none --configfile {input.config}"
        " --report {output} -- {input.results} > {log} 2>&1"


# KEPT lists all saved files of the run.
if NO_COMPLETE_PATIENT:
    KEPT = [*FILES["league"], f"{RUN}/report.html"]
else:
    KEPT = [
        *files_behind(*STAGES, *MEASURED_BY, *BASELINES),
        *expand(f"{RUN}/curves/{{stage}}.parquet", stage=list(BASELINES)),
        f"{RUN}/summary.csv",
        *REPORTED,
        *(
            f"{RUN}/{name}"
            for name in (
                "config.json",
                "provenance.json",
                "report.html",
                "README.md",
                "workflow.html",
            )
        ),
    ]
