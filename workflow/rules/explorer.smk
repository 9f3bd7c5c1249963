# A page to step through some patients' acquisition, made of the choices of the allocation grid.
from afa.codedigest import PACKAGE
from afa.files import sha256_of

# What the page is written in beside Python: it is made again when that changes.
PAGE_CODE = "".join(
    sha256_of(part)[:16]
    for part in sorted((PACKAGE / "report").glob("explorer*"))
    if part.suffix in (".html", ".css", ".js")
)


rule explorer:
    input:
        bundle=f"{RUN}/bundle",
        cohort=f"{RUN}/cohort",
        tables=f"{RUN}/tables/allocation",
    output:
        report(
            f"{RUN}/explorer.html",
            caption="../report/explorer.rst",
            category="Explorer",
            labels={"page": "acquisition, step by step"},
        ),
    log:
        f"{RUN}/logs/explorer.log",
    benchmark:
        f"{RUN}/benchmarks/explorer.tsv"
    conda:
        "../../envs/afa.yaml"
    threads: 1
    params:
        patients=settings.explorer.patients,
        k=settings.k,
        solver=SOLVER,
        code=command_digest("report:explorer_page") + PAGE_CODE,
    shell:
        "afa explorer --bundle {input.bundle} --cohort {input.cohort} --tables {input.tables}"
        " --patients {params.patients} --k {params.k} {params.solver} --threads {threads}"
        " --out {output} > {log} 2>&1"
