# What a reader sees: the summary, the figures, and the report made of them.
rule summary:
    input:
        sign=f"{RUN}/tables/sign",
    output:
        report(
            f"{RUN}/summary.csv",
            caption="../report/summary.rst",
            category="Tables",
            labels={"table": "every number of the report"},
        ),
    log:
        f"{RUN}/logs/summary.log",
    benchmark:
        f"{RUN}/benchmarks/summary.tsv"
    conda:
        "../../envs/afa.yaml"
    params:
        resamples=settings.bootstrap.resamples,
        confidence=settings.bootstrap.confidence,
        code=command_digest("summarise"),
    shell:
        "afa summarise --sign {input.sign} --resamples {params.resamples}"
        " --confidence {params.confidence} --out {output} > {log} 2>&1"


rule sign_notebook:
    input:
        notebook="notebooks/sign_convergence.ipynb",
        summary=f"{RUN}/summary.csv",
        cohort=f"{RUN}/cohort",
        bundle=f"{RUN}/bundle",
        paper="resources/paper/tab_m2_random_sign.csv",
    output:
        notebook=f"{RUN}/notebooks/sign_convergence.ipynb",
        svg=report(
            f"{RUN}/figures/sign_convergence.svg",
            caption="../report/sign_convergence.rst",
            category="Top-k identification",
            labels={"figure": "sign accuracy under random order"},
        ),
        pdf=f"{RUN}/figures/sign_convergence.pdf",
        png=f"{RUN}/figures/sign_convergence.png",
    log:
        f"{RUN}/logs/sign_notebook.log",
    benchmark:
        f"{RUN}/benchmarks/sign_notebook.tsv"
    conda:
        "../../envs/afa.yaml"
    params:
        figure=subpath(output.svg, strip_suffix=".svg"),
        code=code_digest("afa.report.figures") + command_digest("notebook"),
    shell:
        "afa notebook {input.notebook} --out {output.notebook}"
        " -p summary={input.summary} -p cohort={input.cohort} -p bundle={input.bundle}"
        " -p paper={input.paper} -p figure={params.figure} > {log} 2>&1"


rule notebook_page:
    input:
        notebook=f"{RUN}/notebooks/{{name}}.ipynb",
    output:
        report(
            f"{RUN}/notebooks/{{name}}.html",
            caption="../report/notebook.rst",
            category="Notebooks",
            labels={"notebook": "{name}"},
        ),
    log:
        f"{RUN}/logs/notebook_page/{{name}}.log",
    benchmark:
        f"{RUN}/benchmarks/notebook_page/{{name}}.tsv"
    conda:
        "../../envs/afa.yaml"
    params:
        folder=subpath(output[0], parent=True),
    shell:
        "jupyter nbconvert {input.notebook} --to html --no-input --output-dir {params.folder} --output {wildcards.name}.html"
        " --HTMLExporter.mathjax_url= --HTMLExporter.require_js_url= --HTMLExporter.jquery_url= > {log} 2>&1"


REPORTED = [f"{RUN}/summary.csv", f"{RUN}/notebooks/sign_convergence.html"]


# The settings of this run, complete and checked: what makes its numbers, beside them.
rule run_config:
    output:
        f"{RUN}/config.json",
    log:
        f"{RUN}/logs/run_config.log",
    benchmark:
        f"{RUN}/benchmarks/run_config.tsv"
    conda:
        "../../envs/afa.yaml"
    params:
        settings=settings.model_dump_json(indent=1),
    shell:
        "printf '%s\\n' {params.settings:q} > {output} 2> {log}"


# Snakemake's own report of the finished stages; a rule, so that it is made again when, and only when, they are.
rule report_page:
    input:
        results=REPORTED,
        config=f"{RUN}/config.json",
        text=collect(
            "workflow/report/{name}.rst",
            name=["workflow", "summary", "sign_convergence", "notebook"],
        ),
    output:
        f"{RUN}/report.html",
    log:
        f"{RUN}/logs/report_page.log",
    benchmark:
        f"{RUN}/benchmarks/report_page.tsv"
    conda:
        "../../envs/afa.yaml"
    shell:
        "snakemake --nolock --cores 1 --profile none --workflow-profile none --configfile {input.config}"
        " --report {output} -- {input.results} > {log} 2>&1"
