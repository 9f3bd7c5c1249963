# The rule `bundle` checks a bundle and writes it in canonical form. There are three sources of the bundle: the answers
# of the elicitation, the answers in a labelled data set, or a folder of the user.
if OWN_BUNDLE is None:

    include: "elicit.smk"

elif settings.bundle is None:

    rule field_bundle:
        """The bundle made from the recorded answers of a labelled data set."""
        input:
            field=ancient(FIELD),
            files=files_of(
                FIELD, "study.yaml", "entities.csv", "features.csv", "record/*.csv"
            ),
        output:
            bundle=FILES["bundle"],
        log:
            f"{RUN}/logs/field_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/field_bundle.tsv"
        retries: 0
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            folder=folder_of_output("bundle"),
            contents=contents(
                files_of(
                    FIELD, "study.yaml", "entities.csv", "features.csv", "record/*.csv"
                )
            ),
            code=command_digest("cohort:field_bundle"),
        shell:
            "rm -rf {params.folder} && afa field bundle {input.field} --out {params.folder} > {log} 2>&1"

else:

    rule copy_bundle:
        """A user's bundle, checked and in canonical form."""
        input:
            bundle=ancient(settings.bundle),
            tables=files_of(settings.bundle, "bundle.yaml", "*.csv"),
        output:
            bundle=FILES["bundle"],
        log:
            f"{RUN}/logs/copy_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/copy_bundle.tsv"
        retries: 0
        localrule: True
        conda:
            ENVIRONMENT
        resources:
            mem_mb=memory,
            runtime=minutes,
        params:
            folder=folder_of_output("bundle"),
            contents=contents(files_of(settings.bundle, "bundle.yaml", "*.csv")),
            code=command_digest("bundle:bundle_copy"),
        shell:
            "rm -rf {params.folder} && afa bundle copy {input.bundle:q} --out {params.folder} > {log} 2>&1"
