# From questions to a bundle: recorded answers, or with `live` a model that is asked for what its record lacks.
from afa.elicit.record import RETRIEVED
from afa.elicit.study import KEYWORDS_FILE, RECORD_FOLDER, retrieves, study_files

ELICITATION = settings.elicitation
STUDY = here_or_home(ELICITATION.study)
RECORD = ELICITATION.record or STUDY / RECORD_FOLDER
STUDY_FILES = files_of(STUDY, *(path.name for path in study_files(STUDY).values()))
# A live stage appends to its record, which is therefore no input: it would be newer than what was made of it.
RECORD_FILES = [] if ELICITATION.live else files_of(RECORD, "*.jsonl")
KEYWORD_FILES = []
if retrieves(STUDY):
    KEYWORD_FILES = files_of(STUDY, KEYWORDS_FILE)
    RECORD_FILES += [] if ELICITATION.live else files_of(RECORD, f"{RETRIEVED}/**/*")


rule elicit_unary:
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        keywords=KEYWORD_FILES,
        answers=RECORD_FILES,
    output:
        tables=directory(f"{RUN}/elicitation/unary"),
    log:
        f"{RUN}/logs/elicit_unary.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_unary.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
        terms=ELICITATION.terms,  # caps and prices: no parameters, as another cap makes no other answers
    params:
        record=f"--record {shlex.quote(str(RECORD))}",
        live="--live" if ELICITATION.live else "",
        wording=live_options("unary"),
        code=command_digest("elicit:elicit_unary"),
    shell:
        "afa elicit unary {input.study:q} {params.record} {params.live} {resources.terms} --out {output.tables} > {log} 2>&1"


rule elicit_consensus:
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=f"{RUN}/elicitation/unary",
    output:
        tables=directory(f"{RUN}/elicitation/consensus"),
    log:
        f"{RUN}/logs/elicit_consensus.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_consensus.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        min_agree=ELICITATION.min_agree,
        code=command_digest("elicit:elicit_consensus"),
    shell:
        "afa elicit consensus {input.study:q} --unary {input.unary} --min-agree {params.min_agree}"
        " --out {output.tables} > {log} 2>&1"


rule elicit_evidence:
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=f"{RUN}/elicitation/unary",
        consensus=f"{RUN}/elicitation/consensus",
    output:
        tables=directory(f"{RUN}/elicitation/evidence"),
    log:
        f"{RUN}/logs/elicit_evidence.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_evidence.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        code=command_digest("elicit:elicit_evidence"),
    shell:
        "afa elicit evidence {input.study:q} --unary {input.unary} --consensus {input.consensus}"
        " --out {output.tables} > {log} 2>&1"


rule elicit_pairwise:
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        keywords=KEYWORD_FILES,
        answers=RECORD_FILES,
        evidence=f"{RUN}/elicitation/evidence",
    output:
        tables=directory(f"{RUN}/elicitation/pairwise"),
    log:
        f"{RUN}/logs/elicit_pairwise.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_pairwise.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
        terms=ELICITATION.terms,  # caps and prices: no parameters, as another cap makes no other answers
    params:
        record=f"--record {shlex.quote(str(RECORD))}",
        live="--live" if ELICITATION.live else "",
        wording=live_options("pairwise", "anchor", "conditional"),
        code=command_digest("elicit:elicit_pairwise"),
    shell:
        "afa elicit pairwise {input.study:q} --evidence {input.evidence} {params.record} {params.live} {resources.terms}"
        " --out {output.tables} > {log} 2>&1"


rule build_bundle:
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=f"{RUN}/elicitation/unary",
        consensus=f"{RUN}/elicitation/consensus",
        evidence=f"{RUN}/elicitation/evidence",
        pairwise=f"{RUN}/elicitation/pairwise",
    output:
        bundle=directory(f"{RUN}/bundle"),
        dropped=f"{RUN}/bundle_dropped.csv",
    log:
        f"{RUN}/logs/build_bundle.log",
    benchmark:
        f"{RUN}/benchmarks/build_bundle.tsv"
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        min_agree=ELICITATION.min_agree,
        code=command_digest("elicit:elicit_bundle"),
    shell:
        "afa elicit bundle {input.study:q} --unary {input.unary} --consensus {input.consensus}"
        " --evidence {input.evidence} --pairwise {input.pairwise} --min-agree {params.min_agree}"
        " --out {output.bundle} --dropped {output.dropped} > {log} 2>&1"
