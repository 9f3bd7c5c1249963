"""The bundle that kept genes and judged pairs make, with where its answers come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from afa.bundle import Bundle, load_bundle, write_bundle
from afa.elicit.consensus import SAME_MODEL
from afa.elicit.knowledge import pooled_shares, read_voters
from afa.elicit.record import UNKNOWN
from afa.elicit.study import PairMode, Study

SIGNS = "same +1, opposite -1; unclear pairs are left out, which equals a zero"
COUPLINGS: Mapping[PairMode, str] = {
    "each": SIGNS,
    "by_anchor": f"{SIGNS}; all pairs of an anchor gene were judged in one answer",
    "conditional": "ln of P(gene_b shifts as gene_a does) with the phenotype over that without it",
}


def write_elicited_bundle(
    study: Study,
    tables: Mapping[str, pd.DataFrame],
    destination: str | Path,
    *,
    min_agree: int,
    name: str | None = None,
    version: str = "1",
    probabilities: str | Path | None = None,
) -> Bundle:
    """Write the bundle of a study; the same answers give the same bytes.

    tables : `asked` of both passes, `named` and `pairs` of `afa.elicit.tables`, `kept` of the last filter, `dropped` of
    all. Potentials are +1 and -1; of pairs that were asked for conditionally, logarithms of a ratio. A pair that is
    `unclear` is left out, which equals a zero, and counted. probabilities : a folder of voters who say how often
    (`afa.elicit.knowledge.read_voters`); their answers stand beside the potentials, for the encoding by controls.
    """
    voters = len(study.settings.voters)
    kept, pairs = tables["kept"], tables["pairs"]
    clear = pairs[pairs["sign"] != 0]
    unary = pd.DataFrame(
        {
            "entity": kept["phenotype"],
            "feature": kept["gene"],
            "potential": kept["potential"],
            "confidence": kept["confidence"].round(4),
            "evidence": _mechanisms(tables["named"], kept, voters),
        }
    )
    provenance = _provenance(study, tables, min_agree)
    if probabilities is not None:
        said = read_voters(probabilities, unary)
        unary = unary.join(pooled_shares(said, unary))
        provenance["probabilities"] = f"of {said['voter'].nunique()} voters, pooled by the mean of log-probabilities"
    write_bundle(
        destination,
        name=name or f"{study.settings.name}-{min_agree}of{voters}{'' if probabilities is None else '-rates'}",
        version=version,
        entities=study.names,
        features=sorted(kept["gene"].unique()),
        unary=unary,
        pairwise=pd.DataFrame(
            {
                "entity": clear["phenotype"],
                "feature_a": clear["gene_a"],
                "feature_b": clear["gene_b"],
                "potential": clear["coupling"] if study.settings.pairs == "conditional" else clear["sign"],
                "confidence": clear["lit_prob"],
                "evidence": clear["text"],
            }
        ),
        provenance=provenance,
        encoding=None if probabilities is None else "controls",
    )
    return load_bundle(destination)


def record_digest(asked: pd.DataFrame) -> str:
    """SHA-256 over the answers, whatever files they lie in and in whatever order."""
    return hashlib.sha256("\n".join(sorted(asked["answer"])).encode()).hexdigest()


def _mechanisms(named: pd.DataFrame, kept: pd.DataFrame, voters: int) -> list[str]:
    """For each kept gene how many runs named it, and the mechanism that the first of them gave."""
    first = named.drop_duplicates(["phenotype", "gene"])
    told = kept.merge(first, on=["phenotype", "gene"], how="left", validate="one_to_one")
    return [f"named by {row.n_runs} of {voters} runs; {row.run}: {row.mechanism}" for row in told.itertuples()]


def _provenance(study: Study, tables: Mapping[str, pd.DataFrame], min_agree: int) -> dict[str, Any]:
    """What is known of the answers: by the study of a record made elsewhere, else by the answers themselves."""
    settings, asked, signs = study.settings, tables["asked"], tables["pairs"]["sign"]
    known = {
        "model": ", ".join(sorted(asked["model"].unique())),
        "prompts": ", ".join(sorted((asked["prompt"] + " " + asked["prompt_digest"].str[:12]).unique())),
        "date": _dates(asked),
        "evidence": f"{settings.abstracts} abstracts retrieved per question" if settings.abstracts else "no retrieval",
    }
    caveats = [*settings.provenance.get("caveats", ()), *([SAME_MODEL] if settings.same_model else ())]
    return {
        **known,
        **{key: value for key, value in settings.provenance.items() if key != "caveats"},
        "consensus": f"a gene is kept for a phenotype where at least {min_agree} of {len(settings.voters)} runs name it"
        " and all runs that name it agree on its direction; confidence is the mean over those runs",
        "references": "a gene needs a supported reference" if settings.references else "no filter by references",
        "couplings": COUPLINGS[settings.pairs],
        "counts": {
            "genes_kept": len(tables["kept"]),
            "genes_dropped": len(tables["dropped"]),
            "pairs_asked_of_survivors": len(signs),
            "pairs_same": int((signs == 1).sum()),
            "pairs_opposite": int((signs == -1).sum()),
            "pairs_unclear": int((signs == 0).sum()),
        },
        **({"caveats": caveats} if caveats else {}),
        "record_sha256": record_digest(asked),
    }


def _dates(asked: pd.DataFrame) -> str:
    days = sorted({time[:10] for time in asked["time"] if time != UNKNOWN})
    return UNKNOWN if not days else days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
