"""The bundle that a consensus makes of the recorded elicitation."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from afa.bundle import Bundle, load_bundle, write_bundle
from afa.elicit.consensus import ConsensusResult, consensus
from afa.elicit.recorded import RUNS, Recorded, read_recorded
from afa.errors import ElicitationError, Fault

CAVEATS = (
    "The runs are independent answers of one model, not of several models, so their agreement is weak evidence.",
    "Everything comes from the model's own knowledge: no literature was checked, nothing here is a citation, and gene"
    " symbols were not looked up in HGNC.",
    "The pair answers were given as groups with overrides, knowing the unary directions, and a few were revised once;"
    " that their signs follow the unary directions confirms nothing.",
    "The probabilities given as confidence are coarse and not calibrated.",
)


def build_recorded_bundle(
    folder: str | Path, destination: str | Path, *, min_agree: int, name: str | None = None, version: str = "1"
) -> tuple[Bundle, pd.DataFrame]:
    """Write the bundle that a consensus of `min_agree` runs makes of a record; the same record gives the same bytes.

    The bundle's name is `recorded-2of3` or the like unless given.

    Returns the bundle and the table of dropped genes (phenotype, gene, reason). Couplings lie between survivors of the
    same phenotype; unclear pairs are left out, which equals a zero, and counted in the provenance. An
    `ElicitationError` names a pair of survivors that the record does not hold.
    """
    recorded = read_recorded(folder)
    result = consensus(recorded.answers, min_agree=min_agree)
    pairs = _surviving_pairs(recorded, result, Path(folder))
    clear = pairs[pairs["sign"] != 0]
    write_bundle(
        destination,
        name=name or f"recorded-{min_agree}of{len(RUNS)}",
        version=version,
        entities=recorded.phenotypes["phenotype"].tolist(),
        features=sorted(result.kept["gene"].unique()),
        unary=pd.DataFrame(
            {
                "entity": result.kept["phenotype"],
                "feature": result.kept["gene"],
                "potential": result.kept["potential"],
                "confidence": result.kept["confidence"].round(4),
                "evidence": _unary_evidence(recorded.answers, result.kept),
            }
        ),
        pairwise=pd.DataFrame(
            {
                "entity": clear["phenotype"],
                "feature_a": clear["gene_a"],
                "feature_b": clear["gene_b"],
                "potential": clear["sign"],
                "confidence": clear["lit_prob"],
                "evidence": clear["text"],
            }
        ),
        provenance=_provenance(recorded, result, pairs, min_agree),
    )
    return load_bundle(destination), result.dropped


def _surviving_pairs(recorded: Recorded, result: ConsensusResult, folder: Path) -> pd.DataFrame:
    """The recorded pairs between survivors of the same phenotype; every one must have been asked."""
    survivors = {name: set(genes) for name, genes in result.kept.groupby("phenotype")["gene"]}
    none: set[str] = set()
    faults, parts = [], []
    for phenotype in recorded.phenotypes["phenotype"]:
        kept = survivors.get(phenotype, none)
        asked = recorded.pairs[recorded.pairs["phenotype"] == phenotype]
        present = {frozenset(pair) for pair in zip(asked["gene_a"], asked["gene_b"], strict=True)}
        absent = [pair for pair in combinations(sorted(kept), 2) if frozenset(pair) not in present]
        if absent:
            where = str(folder / "raw" / "pairwise" / f"{phenotype}.csv")
            shown = ", ".join("-".join(pair) for pair in absent[:3])
            found = f"{len(absent)} pairs of surviving genes not asked ({shown}{', ...' if len(absent) > 3 else ''})"
            step = "raise min_agree, or add the answers for these pairs"
            faults.append(Fault(where, found, "every pair of the genes that survive the consensus", step))
        parts.append(asked[asked["gene_a"].isin(kept) & asked["gene_b"].isin(kept)])
    if faults:
        raise ElicitationError(faults)
    surviving: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return surviving


def _unary_evidence(answers: pd.DataFrame, kept: pd.DataFrame) -> list[str]:
    """For each kept gene how many runs named it, and the mechanism that the first of them gave."""
    first = answers.drop_duplicates(["phenotype", "gene"])
    named = kept.merge(first, on=["phenotype", "gene"], how="left", validate="one_to_one")
    return [f"named by {row.n_runs} of {len(RUNS)} runs; {row.run}: {row.mechanism}" for row in named.itertuples()]


def _provenance(recorded: Recorded, result: ConsensusResult, pairs: pd.DataFrame, min_agree: int) -> dict[str, Any]:
    signs = pairs["sign"]
    return {
        "model": "unknown (one large language model; the record does not name it)",
        "prompts": "the two elicitation questions of the paper, unary and pairwise; their exact wording is unknown",
        "date": "unknown",
        "evidence": "model knowledge only; no expression data, labels or retrieval",
        "consensus": f"a gene is kept for a phenotype where at least {min_agree} of {len(RUNS)} runs name it and all"
        " runs that name it agree on its direction; confidence is the mean over those runs",
        "couplings": "same +1, opposite -1; unclear pairs are left out, which equals a zero",
        "counts": {
            "genes_kept": len(result.kept),
            "genes_dropped": len(result.dropped),
            "pairs_asked_of_survivors": len(pairs),
            "pairs_same": int((signs == 1).sum()),
            "pairs_opposite": int((signs == -1).sum()),
            "pairs_unclear": int((signs == 0).sum()),
        },
        "caveats": list(CAVEATS),
        "record_sha256": recorded.digest,
    }
