"""Small recorded elicitations, written as the record that the workflow reads."""

import json

from afa.elicit.record import UNKNOWN, Entry, Messages, Question, Record
from afa.model.study import PAIR_RUN, RECORD_FOLDER

WORDS = {1: "Upregulated", -1: "Downregulated"}
PAIR_WORDS = {1: "same", -1: "opposite", 0: "unclear"}


def write_study(folder, phenotypes, runs=("r1", "r2", "r3")):
    """`study.yaml` and `phenotypes.csv` of a study; its record is empty."""
    folder.mkdir(exist_ok=True, parents=True)
    text = f"name: small\ndisease: IBD\ntissue: colon\nvoters: [{', '.join(runs)}]\n"
    (folder / "study.yaml").write_text(text, encoding="utf-8")
    lines = ["phenotype,group,definition", *(f"{name},,what {name} is" for name in phenotypes)]
    (folder / "phenotypes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def add_genes(folder, phenotype, run, genes, wording=UNKNOWN, model=UNKNOWN):
    """Append a unary answer: genes by name, each with its sign, or with (sign, lit_prob)."""
    parts = []
    for gene, given in genes.items():
        sign, lit_prob = given if isinstance(given, tuple) else (given, 0.5)
        part = {"gene_symbol": gene, "category": "c", "direction_in_disease": WORDS[sign], "mechanism_of_action": "m"}
        part |= {"tissue": "t", "lit_prob": lit_prob, "evidence_source": "model_knowledge"}
        parts.append(part if wording == UNKNOWN else {**part, "snippet": "", "reference_indices": []})
    document = {"phenotype": phenotype, "genes": parts}
    if wording == UNKNOWN:
        document["run"] = run
    _append(folder, Question("unary", {"phenotype": phenotype}, run), document, wording, model)


def add_pairs(folder, phenotype, pairs, wording=UNKNOWN, lit_prob=0.5):
    """Append an answer for each pair of genes, by its sign."""
    for (one, other), sign in pairs.items():
        document = {"lit_direction": PAIR_WORDS[sign], "lit_prob": lit_prob, "evidence_source": "model_knowledge"}
        document |= (
            {"supporting_text": "s"} if wording == UNKNOWN else {"supporting_text": "s", "reference_indices": []}
        )
        question = Question("pairwise", {"phenotype": phenotype, "gene1": one, "gene2": other}, PAIR_RUN)
        _append(folder, question, document, wording, UNKNOWN)


def add_anchor(folder, phenotype, anchor, signs, wording):
    """Append one answer on an anchor gene and all its partners, by their signs."""
    part = {"lit_prob": 0.5, "evidence_source": "model_knowledge", "supporting_text": "s", "reference_indices": []}
    pairs = [{"gene2": gene, "lit_direction": PAIR_WORDS[sign], **part} for gene, sign in signs.items()]
    values = {"phenotype": phenotype, "gene1": anchor, "partners": " ".join(signs)}
    _append(folder, Question("anchor", values, PAIR_RUN), {"gene1": anchor, "pairs": pairs}, wording, UNKNOWN)


def add_conditional(folder, phenotype, one, other, p_with, p_without, wording):
    """Append one answer on a pair that was asked for by conditional probabilities."""
    document = {"p_with": p_with, "p_without": p_without, "evidence_source": "none", "supporting_text": ""}
    question = Question("conditional", {"phenotype": phenotype, "gene1": one, "gene2": other}, PAIR_RUN)
    _append(folder, question, {**document, "reference_indices": []}, wording, UNKNOWN)


def entry_of(question, raw, wording=UNKNOWN, model=UNKNOWN):
    """An answered entry of which nothing else is known."""
    return Entry(
        question=question,
        model=model,
        parameters=UNKNOWN,
        prompt_digest=wording,
        messages=UNKNOWN,
        outcome="answered",
        raw=raw,
        detail="",
        attempt=1,
        time=UNKNOWN,
        tokens=UNKNOWN,
    )


def _append(folder, question, document, wording, model):
    Record(folder / RECORD_FOLDER).append(entry_of(question, json.dumps(document), wording, model))


def wordings(folder):
    """The rendered prompts of a record by their digests, of its whole lines."""
    lines = [line for path in folder.glob("*.wordings") for line in path.read_text().splitlines() if line[-1] == "}"]
    parts = {each["sha256"]: each for each in map(json.loads, lines)}
    whole = {name: each for name, each in parts.items() if "system" in each}
    return {name: Messages(*(parts[each[part]]["text"] for part in ("system", "user"))) for name, each in whole.items()}
