"""A scripted model: an answer to every prompt of afa, which hangs on the request alone."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from elicit.llm_server import Document

GENES = ("MUC2", "TFF3", "AQP8", "CA1", "SLC26A3", "DUOX2", "S100A8", "CXCL1", "OSM", "IL1B", "MMP3", "CHI3L1", "LCN2")
SCHEMAS = {
    "UnaryAnswer": "unary",
    "PairAnswer": "pairwise",
    "AnchorAnswer": "anchor",
    "ConditionalAnswer": "conditional",
    "CutsAnswer": "cuts",
    "RatesAnswer": "rates",
    "BinaryTurn": "binary",
    "MulticlassTurn": "multiclass",
}


def schema(document: Document) -> str:
    """The name of the schema that the request asks for, as a schema or in its text."""
    title = document.get("response_format", {}).get("json_schema", {}).get("schema", {}).get("title")
    system = document["messages"][0]["content"]
    return str(
        title or next(name for name in SCHEMAS if f"'title': '{name}'" in system or f'"title": "{name}"' in system)
    )


def line(document: Document, name: str) -> str:
    """What stands after `name:` in the user's part."""
    found = re.search(rf"^{re.escape(name)}: (.*)$", document["messages"][1]["content"], re.MULTILINE)
    assert found, f"the prompt has no line {name}"
    return found.group(1).strip()


def scripted(document: Document) -> str:
    """An answer of the schema that is asked for, as JSON."""
    makers = (unary, pairwise, anchor, conditional, cuts, rates, binary, multiclass)
    answers = {maker.__name__: maker for maker in makers}
    return json.dumps(answers[SCHEMAS[schema(document)]](document))


def unary(document: Document) -> dict[str, Any]:
    """Six genes of `GENES`, by the phenotype; the sixth hangs on the model as well."""
    phenotype = line(document, "Phenotype").split(" (")[0]
    ranked = sorted(GENES, key=lambda gene: _draw(phenotype, gene))
    chosen = [*ranked[:5], ranked[5 + int(_draw(phenotype, document["model"]) * 4)]]
    return {"phenotype": phenotype, "genes": [_gene(phenotype, gene) for gene in chosen]}


def _gene(phenotype: str, gene: str) -> dict[str, Any]:
    return {
        "gene_symbol": gene,
        "category": "scripted",
        "direction_in_disease": "Upregulated" if _draw(gene, phenotype) < 0.5 else "Downregulated",
        "mechanism_of_action": f"{gene} acts on {phenotype}, as the script has it.",
        "tissue": "colon",
        "lit_prob": round(0.5 + _draw(phenotype, gene) / 2, 2),
        "evidence_source": "model_knowledge",
        "snippet": "",
        "reference_indices": [],
    }


def features(document: Document) -> list[str]:
    """The features that are listed."""
    return re.findall(r"^- (.+?): ", document["messages"][1]["content"], re.MULTILINE)


def cuts(document: Document) -> dict[str, Any]:
    """A low end for every second feature, a high one for all; the voter's own are a little apart."""
    own = _draw("cuts", document["model"])
    ends = [(None if place % 2 else 10 + own, 20 + own) for place in range(len(features(document)))]
    return {
        "features": [{"feature": n, "low": a, "high": b} for n, (a, b) in zip(features(document), ends, strict=True)]
    }


def rates(document: Document) -> dict[str, Any]:
    """Probabilities by phenotype and feature; of a low value only where the prompt has one."""
    phenotype, text = line(document, "Phenotype").split(" (")[0], document["messages"][1]["content"]
    rows = []
    for name in features(document):
        shift = 1 if _draw(phenotype, name) < 0.5 else -1
        below = 0.1 if re.search(rf"^- {re.escape(name)}: .*Low: ", text, re.MULTILINE) else 0.0
        rows.append(
            {
                "feature": name,
                "direction": shift,
                "p_high_with": 0.5 + 0.3 * shift,
                "p_high_without": 0.5 - 0.3 * shift,
                "p_low_with": below,
                "p_low_without": below,
                "confidence": 0.8,
                "reason": "as the script has it",
            }
        )
    return {"phenotype": phenotype, "features": rows}


def pairwise(document: Document) -> dict[str, Any]:
    """A direction by the two genes and the phenotype, the same whichever comes first."""
    genes = [line(document, name).split(",")[0] for name in ("Gene 1 (anchor)", "Gene 2")]
    return _pair(document, *genes)


def anchor(document: Document) -> dict[str, Any]:
    """The answers of `pairwise` for one gene and all others that are listed."""
    first = line(document, "Gene 1 (anchor)").split(",")[0]
    others = [part.split(" (")[0] for part in line(document, "Other genes").split(", ")]
    return {"gene1": first, "pairs": [{**_pair(document, first, other), "gene2": other} for other in others]}


def conditional(document: Document) -> dict[str, Any]:
    """Probabilities whose ratio has the sign of the answer of `pairwise`."""
    answer = pairwise(document)
    ratio = {"same": (0.8, 0.4), "opposite": (0.1, 0.4), "unclear": (0.3, 0.3)}[answer.pop("lit_direction")]
    del answer["lit_prob"]
    return {**answer, "p_with": ratio[0], "p_without": ratio[1]}


def _pair(document: Document, *names: str) -> dict[str, Any]:
    genes = sorted(names)
    draw = _draw(*genes, line(document, "Phenotype"))
    return {
        "lit_direction": "same" if draw < 0.5 else "opposite" if draw < 0.9 else "unclear",
        "lit_prob": round(0.5 + draw / 2, 2),
        "evidence_source": "model_knowledge",
        "supporting_text": f"[UC] {' and '.join(genes)}, as the script has it.",
        "reference_indices": [],
    }


def binary(document: Document) -> dict[str, Any]:
    """The first unobserved feature, and a probability that grows with the share of features that are up."""
    condition = re.search(r"`control` or\s+`([^`]+)`", document["messages"][0]["content"])
    assert condition, "the prompt names no condition"
    up = len(re.findall(r"=\+1", _observed(document)))
    probability = round(0.4 + 0.5 * up / (1 + _observed(document).count("=")), 3)
    return {
        **_turn(document),
        "top_k_labels": [condition.group(1) if probability >= 0.5 else "control"],
        "lit_prob": probability,
        "supporting_text": "As the script has it.",
    }


def multiclass(document: Document) -> dict[str, Any]:
    """The first unobserved feature, and the labels turned by what was observed; never done before the last."""
    system = document["messages"][0]["content"]
    found = re.search(r"exactly (\d+) phenotypes.*?:\n(.*?)\n- ", system, re.DOTALL)
    assert found, "the prompt lists no labels"
    k, labels = int(found.group(1)), [label.strip() for label in found.group(2).split("\n")]
    start = int(_draw(_observed(document)) * len(labels))
    turn = _turn(document)
    ranked = (labels[start:] + labels[:start])[:k]
    return {**turn, "top_k_labels": ranked, "done": turn["next_gene_to_measure"] is None}


def _turn(document: Document) -> dict[str, Any]:
    user = document["messages"][1]["content"]
    rest = re.search(r"^Unobserved .*?: (.*)$", user, re.MULTILINE)
    assert rest, "the prompt lists no features"
    names = [] if rest.group(1) == "nothing is left" else rest.group(1).split(", ")
    return {"patient_id": line(document, "Patient"), "next_gene_to_measure": names[0] if names else None}


def _observed(document: Document) -> str:
    found = re.search(r"^Observed .*?measurement: (.*)$", document["messages"][1]["content"], re.MULTILINE)
    assert found, "the prompt lists no observations"
    return found.group(1)


def _draw(*names: str) -> float:
    """A number in [0, 1) by the names."""
    return int(hashlib.sha256("\0".join(names).encode()).hexdigest()[:12], 16) / 16**12
