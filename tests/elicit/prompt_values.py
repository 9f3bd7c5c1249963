"""Values with which every prompt renders, and an answer about a pair."""

from __future__ import annotations

from afa.model.study import Words

ABSTRACT = {"title": "Fibrosis in mice", "source": "PMID 7", "text": "COL1A1 rises."}
POTENTIALS = [
    {"name": "Fibrosis", "unary": [("MUC2", 1.0), ("HLA-DRA", -1.0)], "pairwise": [("MUC2", "HLA-DRA", -1.0)]},
    {"name": "Stricture", "unary": [], "pairwise": []},
]
VALUES = {
    "disease": "Crohn's disease",
    "tissue": "colon",
    "word": Words().model_dump(),
    "vocabulary": (),
    "phenotype": "Fibrosis",
    "definition": "scarring of the wall",
    "most_genes": 25,
    "snippet_length": 300,
    "bibliography": 0,
    "exactly": False,
    "scope": "",
    "exclusions": "",
    "text_length": 600,
    "abstracts": [ABSTRACT],
    "gene1": "COL1A1",
    "direction1": "Upregulated",
    "gene2": "MUC2",
    "partners": [("MUC2", "Downregulated"), ("TFF3", "Upregulated")],
    "rows": [{"name": "heat", "unit": "C", "coding": "", "definition": "Heat.", "ends": "High: above 70 C."}],
    "condition": "Fibrosis",
    "potentials": POTENTIALS,
    "labels": ["Fibrosis", "Stricture, late", "Fistula"],
    "k": 2,
    "patient": "P1",
    "turn": 3,
    "turns": 5,
    "total": 4,
    "observed": [("COL1A1", 1), ("MUC2", 0)],
    "unobserved": ["AQP8", "TFF3"],
    "fault": "",
    "prior_turns": [{"turn": 2, "feature": "MUC2", "value": 0, "labels": ["Fibrosis", "Fistula"]}],
}
PAIR = {
    "lit_direction": "same",
    "lit_prob": 0.5,
    "evidence_source": "none",
    "supporting_text": "",
    "reference_indices": [],
}
