# The bundle: from the recorded answers, or the user's own, checked and in canonical form.
if settings.bundle is None:

    rule build_bundle:
        input:
            record="resources/elicitation",
        output:
            bundle=directory(f"{RUN}/bundle"),
            dropped=f"{RUN}/bundle_dropped.csv",
        log:
            f"{RUN}/logs/build_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/build_bundle.tsv"
        conda:
            "../../envs/afa.yaml"
        params:
            min_agree=settings.elicitation.min_agree,
            code=command_digest("bundle:bundle_build"),
        shell:
            "afa bundle build {input.record} --min-agree {params.min_agree}"
            " --out {output.bundle} --dropped {output.dropped} > {log} 2>&1"

else:

    rule copy_bundle:
        input:
            bundle=settings.bundle,
        output:
            bundle=directory(f"{RUN}/bundle"),
        log:
            f"{RUN}/logs/copy_bundle.log",
        benchmark:
            f"{RUN}/benchmarks/copy_bundle.tsv"
        conda:
            "../../envs/afa.yaml"
        params:
            code=command_digest("bundle:bundle_copy"),
        shell:
            "afa bundle copy {input.bundle} --out {output.bundle} > {log} 2>&1"
