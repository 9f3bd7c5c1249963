# The cohort: a series fetched from GEO, found in a mirror, or simulated in GEO's layout; then encoded.
MIRROR, SERIES_FILES = [], []
if SIMULATED:
    MIRROR = f"{RUN}/geo"
elif settings.geo_mirror is not None:
    MIRROR = ancient(settings.geo_mirror)
    SERIES_FILES = files_of(settings.geo_mirror, f"series/*/{COHORT.series}/**/*")


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
            "../../envs/afa.yaml"
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
        mirror=MIRROR,
        series=SERIES_FILES,
    output:
        source=f"{RUN}/source.json",
    log:
        f"{RUN}/logs/fetch_series.log",
    benchmark:
        f"{RUN}/benchmarks/fetch_series.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        mirror=lambda wildcards, input: (
            f"--mirror '{input.mirror}'" if input.mirror else ""
        ),
        cache=settings.geo_cache,
        code=command_digest("cohort:cohort_fetch"),
    shell:
        "afa cohort fetch {input.config} --cache '{params.cache}' {params.mirror} --out {output.source} > {log} 2>&1"


rule encode_cohort:
    input:
        config=COHORT_FILE,
        source=f"{RUN}/source.json",
        bundle=f"{RUN}/bundle",
        aliases="resources/genes/aliases.csv",
        ensembl="resources/genes/ensembl.csv",
    output:
        cohort=directory(f"{RUN}/cohort"),
    log:
        f"{RUN}/logs/encode_cohort.log",
    benchmark:
        f"{RUN}/benchmarks/encode_cohort.tsv"
    conda:
        "../../envs/afa.yaml"
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        test=settings.encoding.test,
        level=settings.encoding.level,
        reference=settings.encoding.reference,
        threshold=f"--threshold {settings.encoding.threshold}",
        code=command_digest("cohort:cohort_build"),
    shell:
        "afa cohort build {input.config} --source {input.source} --bundle {input.bundle}"
        " --aliases {input.aliases} --ensembl {input.ensembl}"
        " --test {params.test} --level {params.level} --reference {params.reference} {params.threshold} --out {output.cohort} > {log} 2>&1"
