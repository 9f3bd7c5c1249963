# The bundle: elicited, a field's own, or the user's own, checked and in canonical form.
if OWN_BUNDLE is None:

    include: "elicit.smk"

elif settings.bundle is None:

    rule field_bundle:
        input:
            field=ancient(FIELD),
            files=files_of(
                FIELD, "study.yaml", "entities.csv", "features.csv", "record/*.csv"
            ),
        output:
            bundle=directory(f"{RUN}/bundle"),
        log:
            f"{RUN}/logs/field_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/field_bundle.tsv"
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            code=command_digest("cohort:field_bundle"),
        shell:
            "afa field bundle {input.field} --out {output.bundle} > {log} 2>&1"

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
