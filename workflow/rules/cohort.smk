# The cohort: a series carried as an extract, fetched from GEO, found in a mirror, or simulated in GEO's layout; then encoded.
EXTRACT = None if TABLE else carried_extract(settings, COHORT.series, Path(home(".")))
SERIES, SERIES_FILES = [], []
if SIMULATED:
    SERIES = f"{RUN}/geo"
elif TABLE:
    # A table that is not carried is looked for in the mirror; those that are there make the cohort anew when they change.
    SERIES = [ancient(folder) for folder in [settings.tables] if folder is not None]
    TABLE_PLACES = [COHORT.table, COHORT.features, COHORT.labels] + [
        Path(folder) / COHORT.name / path.name
        for folder in SERIES
        for path in (COHORT.table, COHORT.labels)
        if path
    ]
    SERIES_FILES = [str(path) for path in TABLE_PLACES if path and path.is_file()]
elif settings.geo_mirror is not None:
    SERIES = ancient(settings.geo_mirror)
    SERIES_FILES = files_of(settings.geo_mirror, f"series/*/{COHORT.series}/**/*")
elif EXTRACT is not None:
    SERIES = ancient(EXTRACT)
    SERIES_FILES = files_of(EXTRACT, "*")


if SIMULATED:

    rule simulate_series:
        input:
            config=COHORT_FILE,
            bundle=f"{RUN}/bundle",
        output:
            mirror=directory(f"{RUN}/geo"),
        log:
            f"{RUN}/logs/simulate_series.log",
        benchmark:
            f"{RUN}/benchmarks/simulate_series.tsv"
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            code=command_digest("cohort:cohort_simulate"),
        shell:
            "afa cohort simulate {input.config} --bundle {input.bundle} --out {output.mirror} > {log} 2>&1"


rule fetch_series:
    input:
        config=COHORT_FILE,
        series=SERIES,
        files=SERIES_FILES,
    output:
        source=f"{RUN}/source.json",
    log:
        f"{RUN}/logs/fetch_series.log",
    benchmark:
        f"{RUN}/benchmarks/fetch_series.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        series=lambda wildcards, input: (
            f"--{'extract' if EXTRACT else 'mirror'} {shlex.quote(str(input.series))}"
            if input.series
            else ""
        ),
        cache=settings.geo_cache,
        code=command_digest("cohort:cohort_fetch"),
    shell:
        "afa cohort fetch {input.config} --cache {params.cache:q} {params.series} --out {output.source} > {log} 2>&1"


rule encode_cohort:
    input:
        config=COHORT_FILE,
        source=f"{RUN}/source.json",
        bundle=f"{RUN}/bundle",
        aliases=home("resources/genes/aliases.csv"),
        ensembl=home("resources/genes/ensembl.csv"),
    output:
        cohort=directory(f"{RUN}/cohort"),
    log:
        f"{RUN}/logs/encode_cohort.log",
    benchmark:
        f"{RUN}/benchmarks/encode_cohort.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        test=settings.encoding.test,
        level=settings.encoding.level,
        reference=settings.encoding.reference,
        threshold=f"--threshold {settings.encoding.threshold}",
        complete="--complete" if TABLE else "",
        code=command_digest("cohort:cohort_build"),
    shell:
        "afa cohort build {input.config} --source {input.source} --bundle {input.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl}"
        " --test {params.test} --level {params.level} --reference {params.reference} {params.threshold}"
        " {params.complete} --out {output.cohort} > {log} 2>&1"


# The same series, each gene compared with the cohort itself, at each of some thresholds.
rule cohort_by_cohort:
    input:
        config=COHORT_FILE,
        source=f"{RUN}/source.json",
        bundle=f"{RUN}/bundle",
        aliases=home("resources/genes/aliases.csv"),
        ensembl=home("resources/genes/ensembl.csv"),
    output:
        cohorts=f"{RUN}/cohort_by_cohort.parquet",
    log:
        f"{RUN}/logs/cohort_by_cohort.log",
    benchmark:
        f"{RUN}/benchmarks/cohort_by_cohort.tsv"
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        thresholds=comma_separated(settings.labels.thresholds),
        complete="--complete" if TABLE else "",
        code=command_digest("cohort:cohort_by_cohort"),
    shell:
        "afa cohort by-cohort {input.config} --source {input.source} --bundle {input.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl} --thresholds {params.thresholds}"
        " {params.complete} --out {output.cohorts} > {log} 2>&1"
