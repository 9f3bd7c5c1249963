# The league: every field with real labels by itself, and the page of them all, in results/league.
FIELDS = sorted(
    path.parent for path in Path(home("resources/fields")).glob("*/study.yaml")
)


rule league_field:
    input:
        files=files_of_field,
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
        field=lambda wildcards: home(f"resources/fields/{wildcards.field}"),
        mirror=(
            ""
            if settings.tables is None
            else f"--tables {shlex.quote(str(settings.tables))}"
        ),
        code=command_digest("league:league_field"),
    shell:
        "afa league field {params.field:q} {params.mirror} --out {output.tables} > {log} 2>&1"


rule league:
    input:
        fields=[f"results/league/fields/{folder.name}" for folder in FIELDS],
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
        code=command_digest("league:league_page") + template_digest("league.*"),
    shell:
        "afa league page {input.fields} --out {output.page} > {log} 2>&1"
