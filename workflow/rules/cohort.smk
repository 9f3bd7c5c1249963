# These rules encode a cohort from an extract in the project, a GEO series, a table, or simulated data.
EXTRACT = None if TABLE else bundled_extract(settings, COHORT.series, Path(home(".")))
SERIES, SERIES_FILES = [], []
FILES["source"] = [f"{RUN}/source.json"]
if SIMULATED:
    FILES["geo"] = [f"{RUN}/geo/{name}" for name in simulated_files(COHORT)]
    SERIES_FILES = FILES["geo"]
elif TABLE:
    # A table that is not part of the project is read from the user's folder `tables`.
    # If files in the folder `tables` change, the cohort is made again.
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


GENE_NAMES = [
    home("resources/genes/aliases.csv"),
    home("resources/genes/ensembl.csv"),
]


if SIMULATED:

    rule simulate_series:
        """A simulated series in GEO's layout, with its ground truth."""
        input:
            config=COHORT_FILE,
            bundle=FILES["bundle"],
        output:
            mirror=FILES["geo"],
        log:
            f"{RUN}/logs/simulate_series.log",
        benchmark:
            f"{RUN}/benchmarks/simulate_series.tsv"
        retries: 0
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            bundle=folder_of_input("bundle"),
            folder=folder_of_output("mirror"),
            contents=contents(COHORT_FILE),
            code=command_digest("cohort:cohort_simulate"),
        shell:
            "rm -rf {params.folder} && afa cohort simulate {input.config} --bundle {params.bundle}"
            " --out {params.folder} > {log} 2>&1"


rule fetch_series:
    """The paths of the series' files, which are fetched from GEO if necessary."""
    input:
        config=COHORT_FILE,
        series=SERIES,
        files=SERIES_FILES,
    output:
        source=FILES["source"],
    log:
        f"{RUN}/logs/fetch_series.log",
    benchmark:
        f"{RUN}/benchmarks/fetch_series.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        series=series_option,
        cache=settings.geo_cache,
        contents=contents(COHORT_FILE, [] if SIMULATED else SERIES_FILES),
        code=command_digest("cohort:cohort_fetch"),
    shell:
        "afa cohort fetch {input.config} --cache {params.cache:q} {params.series} --out {output.source} > {log} 2>&1"


rule encode_cohort:
    """Patients as -1, 0 and +1, with their labels."""
    input:
        config=COHORT_FILE,
        source=FILES["source"],
        bundle=FILES["bundle"],
        aliases=home("resources/genes/aliases.csv"),
        ensembl=home("resources/genes/ensembl.csv"),
    output:
        cohort=FILES["cohort"],
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
        bundle=folder_of_input("bundle"),
        folder=folder_of_output("cohort"),
        test=settings.encoding.test,
        level=settings.encoding.level,
        reference=settings.encoding.reference,
        threshold=f"--threshold {settings.encoding.threshold}",
        complete="--complete" if TABLE else "",
        contents=contents(COHORT_FILE, GENE_NAMES),
        code=command_digest("cohort:cohort_build"),
    shell:
        "rm -rf {params.folder} && afa cohort build {input.config} --source {input.source} --bundle {params.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl}"
        " --test {params.test} --level {params.level} --reference {params.reference} {params.threshold}"
        " {params.complete} --out {params.folder} > {log} 2>&1"


# This rule encodes each gene by comparison with its median in the cohort, once for each of several thresholds.
rule cohort_by_cohort:
    """The cohort's patients, encoded by comparison with each other instead of the controls."""
    input:
        config=COHORT_FILE,
        source=FILES["source"],
        bundle=FILES["bundle"],
        aliases=home("resources/genes/aliases.csv"),
        ensembl=home("resources/genes/ensembl.csv"),
    output:
        cohorts=FILES["by_cohort"],
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
        bundle=folder_of_input("bundle"),
        thresholds=comma_separated(settings.labels.thresholds),
        complete="--complete" if TABLE else "",
        contents=contents(COHORT_FILE, GENE_NAMES),
        code=command_digest("cohort:cohort_by_cohort"),
    shell:
        "afa cohort by-cohort {input.config} --source {input.source} --bundle {params.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl} --thresholds {params.thresholds}"
        " {params.complete} --out {output.cohorts} > {log} 2>&1"
