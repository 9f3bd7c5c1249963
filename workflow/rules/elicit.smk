# These rules make a bundle from recorded answers of a language model.
# With the setting `live`, these rules also ask the model the questions that have no recorded answer.
from afa.elicit.record import RETRIEVED
from afa.model.study import KEYWORDS_FILE, RECORD_FOLDER, retrieves, study_files

ELICITATION = settings.elicitation
STUDY = here_or_home(ELICITATION.study)
RECORD = ELICITATION.record or STUDY / RECORD_FOLDER
STUDY_FILES = files_of(STUDY, *(path.name for path in study_files(STUDY).values()))
# In a live run the file of recorded answers is not an input, because the stage appends answers to this file.
# If the file of recorded answers were an input, it would be newer than the output, and the stage would run again.
RECORD_FILES = [] if ELICITATION.live else files_of(RECORD, "*.jsonl")
KEYWORD_FILES = []
if retrieves(STUDY):
    KEYWORD_FILES = files_of(STUDY, KEYWORDS_FILE)
    RECORD_FILES += [] if ELICITATION.live else files_of(RECORD, f"{RETRIEVED}/**/*")

# ELICITED lists the tables that each step of the elicitation always writes.
# If a study uses abstracts, some steps write additional tables.
ELICITED = {
    "unary": ["asked", "named", "dropped", "references"],
    "consensus": ["kept", "dropped", "agreement"],
    "evidence": ["kept", "dropped", "references"],
    "pairwise": ["asked", "pairs", "dropped"],
}
FILES |= {
    step: [f"{RUN}/elicitation/{step}/{name}.csv" for name in tables]
    for step, tables in ELICITED.items()
}
FILES["study"] = STUDY_FILES
FILES["bundle_dropped"] = [f"{RUN}/bundle_dropped.csv"]


rule elicit_unary:
    """The genes that each voter names for each phenotype."""
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        keywords=KEYWORD_FILES,
        answers=RECORD_FILES,
    output:
        tables=FILES["unary"],
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
        terms=ELICITATION.terms,  # caps and prices are not params, because they do not affect the answers
    params:
        folder=folder_of_output("tables"),
        record=f"--record {shlex.quote(str(RECORD))}",
        live="--live" if ELICITATION.live else "",
        wording=live_options("unary"),
        contents=contents(STUDY_FILES, KEYWORD_FILES, RECORD_FILES),
        code=command_digest("elicit:elicit_unary"),
    shell:
        "afa elicit unary {input.study:q} {params.record} {params.live} {resources.terms} --out {params.folder} > {log} 2>&1"


rule elicit_consensus:
    """The genes on which enough voters agree."""
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=FILES["unary"],
    output:
        tables=FILES["consensus"],
    log:
        f"{RUN}/logs/elicit_consensus.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_consensus.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        unary=folder_of_input("unary"),
        folder=folder_of_output("tables"),
        min_agree=ELICITATION.min_agree,
        contents=contents(STUDY_FILES),
        code=command_digest("elicit:elicit_consensus"),
    shell:
        "afa elicit consensus {input.study:q} --unary {params.unary} --min-agree {params.min_agree}"
        " --out {params.folder} > {log} 2>&1"


rule elicit_evidence:
    """The genes that a retrieved abstract supports, if the study requires it."""
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=FILES["unary"],
        consensus=FILES["consensus"],
    output:
        tables=FILES["evidence"],
    log:
        f"{RUN}/logs/elicit_evidence.log",
    benchmark:
        f"{RUN}/benchmarks/elicit_evidence.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        unary=folder_of_input("unary"),
        consensus=folder_of_input("consensus"),
        folder=folder_of_output("tables"),
        contents=contents(STUDY_FILES),
        code=command_digest("elicit:elicit_evidence"),
    shell:
        "afa elicit evidence {input.study:q} --unary {params.unary} --consensus {params.consensus}"
        " --out {params.folder} > {log} 2>&1"


rule elicit_pairwise:
    """The couplings of each pair of a phenotype's genes."""
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        keywords=KEYWORD_FILES,
        answers=RECORD_FILES,
        evidence=FILES["evidence"],
    output:
        tables=FILES["pairwise"],
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
        terms=ELICITATION.terms,  # caps and prices are not params, because they do not affect the answers
    params:
        evidence=folder_of_input("evidence"),
        folder=folder_of_output("tables"),
        record=f"--record {shlex.quote(str(RECORD))}",
        live="--live" if ELICITATION.live else "",
        wording=live_options("pairwise", "anchor", "conditional"),
        contents=contents(STUDY_FILES, KEYWORD_FILES, RECORD_FILES),
        code=command_digest("elicit:elicit_pairwise"),
    shell:
        "afa elicit pairwise {input.study:q} --evidence {params.evidence} {params.record} {params.live} {resources.terms}"
        " --out {params.folder} > {log} 2>&1"


rule build_bundle:
    """The bundle made from the answers."""
    input:
        study=ancient(STUDY),
        files=STUDY_FILES,
        unary=FILES["unary"],
        consensus=FILES["consensus"],
        evidence=FILES["evidence"],
        pairwise=FILES["pairwise"],
    output:
        bundle=FILES["bundle"],
        dropped=FILES["bundle_dropped"],
    log:
        f"{RUN}/logs/build_bundle.log",
    benchmark:
        f"{RUN}/benchmarks/build_bundle.tsv"
    retries: 0
    localrule: True
    conda:
        ENVIRONMENT
    resources:
        mem_mb=memory,
        runtime=minutes,
    params:
        unary=folder_of_input("unary"),
        consensus=folder_of_input("consensus"),
        evidence=folder_of_input("evidence"),
        pairwise=folder_of_input("pairwise"),
        folder=folder_of_output("bundle"),
        min_agree=ELICITATION.min_agree,
        contents=contents(STUDY_FILES),
        code=command_digest("elicit:elicit_bundle"),
    shell:
        "rm -rf {params.folder} && afa elicit bundle {input.study:q} --unary {params.unary} --consensus {params.consensus}"
        " --evidence {params.evidence} --pairwise {params.pairwise} --min-agree {params.min_agree}"
        " --out {params.folder} --dropped {output.dropped} > {log} 2>&1"
