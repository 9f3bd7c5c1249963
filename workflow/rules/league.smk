# The league: every field with real labels by itself, and the page of them all, in results/league.
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


rule league_field:
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
        code=command_digest("cohort:league_field"),
    shell:
        "afa league field {params.field:q} {params.mirror} --out {output.tables} > {log} 2>&1"


rule league:
    input:
        fields=[f"results/league/fields/{name}" for name in FIELDS],
    output:
        page=directory("results/league/page"),
    log:
        "results/league/logs/page.log",
    benchmark:
        "results/league/benchmarks/page.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("cohort:league_page") + template_digest("league*"),
    shell:
        "afa league page {input.fields} --out {output.page} > {log} 2>&1"


# A run of a field has what the league says of it, first in its report.
if FIELD:

    use rule league_field as measured_field with:
        input:
            files=files_of_field(FIELD.name),
        output:
            tables=directory(f"{RUN}/tables/league"),
        log:
            f"{RUN}/logs/measured_field.log",
        benchmark:
            f"{RUN}/benchmarks/measured_field.tsv"
        params:
            field=str(FIELD),
            mirror=MIRROR,
            code=command_digest("cohort:league_field"),


# Where nobody has every value that is the report.
if GAPS:
    logger.info(
        f"cohort {COHORT.name}: nobody has every value, so the report has what the league says, and no stage of the paper"
    )

    ruleorder: field_report > report_page

    rule field_report:
        input:
            field=f"{RUN}/tables/league",
        output:
            tables=directory(f"{RUN}/league"),
            page=f"{RUN}/report.html",
        log:
            f"{RUN}/logs/field_report.log",
        benchmark:
            f"{RUN}/benchmarks/field_report.tsv"
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            code=command_digest("cohort:league_page") + template_digest("league*"),
        shell:
            "afa league page {input.field} --out {output.tables} > {log} 2>&1"
            " && mv {output.tables}/league.html {output.page}"
