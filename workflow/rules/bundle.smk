# The bundle: elicited, or the user's own, checked and in canonical form.
if settings.bundle is None:

    include: "elicit.smk"

else:

    rule copy_bundle:
        input:
            bundle=ancient(settings.bundle),
            tables=files_of(settings.bundle, "bundle.yaml", "*.csv"),
        output:
            bundle=directory(f"{RUN}/bundle"),
        log:
            f"{RUN}/logs/copy_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/copy_bundle.tsv"
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            code=command_digest("bundle:bundle_copy"),
        shell:
            "afa bundle copy {input.bundle:q} --out {output.bundle} > {log} 2>&1"
