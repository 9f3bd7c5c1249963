# The league is an evaluation of feature acquisition on several labelled data sets. Each data set has a separate job.
# The folder results/league contains one page on all data sets.
FIELDS = sorted(
    {
        path.parent.name
        for place in (Path(), HOME)
        for path in place.glob("resources/fields/*/study.yaml")
    }
)


MIRROR = (
    "" if settings.tables is None else f"--tables {shlex.quote(str(settings.tables))}"
)


# The output is a folder, because the output files are unknown before the job has looked for the table.
# If the table is missing, the job writes a note into the folder.
rule league_field:
    """Accuracy of zero-shot acquisition on one labelled data set."""
    input:
        files=lambda wildcards: files_of_field(wildcards.field),
    output:
        tables=directory("results/league/fields/{field}"),
    log:
        "results/league/logs/{field}.log",
    benchmark:
        "results/league/benchmarks/{field}.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        field=lambda wildcards: str(field_folder(wildcards.field)),
        mirror=MIRROR,
        contents=lambda wildcards: contents(files_of_field(wildcards.field)),
        code=command_digest("cohort:league_field"),
    shell:
        "afa league field {params.field:q} {params.mirror} --out {output.tables} > {log} 2>&1"


rule league:
    """The league's page, figure and tables."""
    input:
        fields=[f"results/league/fields/{name}" for name in FIELDS],
    output:
        page=[f"results/league/page/{name}" for name in declared.LEAGUE_FILES],
    log:
        "results/league/logs/page.log",
    benchmark:
        "results/league/benchmarks/page.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        folder=folder_of_output("page"),
        code=command_digest("cohort:league_page", template_digest("league*")),
    shell:
        "rm -rf {params.folder} && afa league page {input.fields} --out {params.folder} > {log} 2>&1"


# If the patients of a run come from a labelled data set, the report begins with the accuracy of feature acquisition on
# this data set.
if FIELD:
    FILES["league"] = tables_in(f"{RUN}/tables/league", declared.LEAGUE_TABLES)

    rule measured_field:
        """Accuracy of zero-shot acquisition on the labelled data set of this run."""
        input:
            files=files_of_field(FIELD.name),
        output:
            tables=FILES["league"],
        log:
            f"{RUN}/logs/measured_field.log",
        benchmark:
            f"{RUN}/benchmarks/measured_field.tsv"
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            field=str(FIELD),
            mirror=MIRROR,
            folder=folder_of_output("tables"),
            contents=contents(files_of_field(FIELD.name)),
            code=command_digest("cohort:league_field"),
        shell:
            "afa league field {params.field:q} {params.mirror} --out {params.folder} > {log} 2>&1"


# The stages of the paper need patients with all values measured. If there is no such patient, the report is a page
# that contains only the evaluation of feature acquisition on the labelled data set.
if NO_COMPLETE_PATIENT:
    logger.info(
        f"cohort {COHORT.name}: no patient has every value, so the report has the results of the league, and no stage of the paper"
    )

    ruleorder: field_report > report_page

    rule field_report:
        """The report of a labelled data set in which no patient has every value."""
        input:
            field=FILES["league"],
        output:
            tables=[f"{RUN}/league/{name}" for name in declared.LEAGUE_FILES],
            page=f"{RUN}/report.html",
        log:
            f"{RUN}/logs/field_report.log",
        benchmark:
            f"{RUN}/benchmarks/field_report.tsv"
        retries: 0
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            field=folder_of_input("field"),
            folder=folder_of_output("tables"),
            code=command_digest("cohort:league_page", template_digest("league*")),
        shell:
            "rm -rf {params.folder} && afa league page {params.field} --out {params.folder} > {log} 2>&1"
            " && cp {params.folder}/league.html {output.page}"
