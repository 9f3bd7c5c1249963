"""A finished run, small and made by hand, with texts as anyone may write them."""

import json

import nbformat
import numpy as np
import pandas as pd
from bundles import bundle_of

from afa.cohort.cohort import Cohort, write_cohort
from afa.evaluate.summary import COLUMNS as SUMMARY
from afa.model.bundle import save_bundle
from afa.paper.report.comparison import COLUMNS, count_verdicts, write_comparison
from afa.paper.report.screen import COLUMNS as SCREEN
from afa.paper.report.screen import VOTER_COLUMNS

ATTACK = "<script>alert(1)</script>"
QUOTES = "'\"><img src=x onerror=alert(1)>"
PARTS = {"first": f"Inputs: first {ATTACK}", "second": "Checks: second"}
CELL = {"kind": "cell", "table": "tab_a", "row": QUOTES, "column": "t10", "unit": "share", "paper": ".5", "paper_n": 9}
LINES = (
    {
        **CELL,
        "ours": 0.5,
        "low": 0.4,
        "high": 0.6,
        "n": 9,
        "verdict": "",
        "size": "within 2 points",
        "reason": "0 apart",
    },
    {
        **CELL,
        "row": "plain",
        "ours": 0.9,
        "low": 0.8,
        "high": 1,
        "n": 9,
        "verdict": "",
        "size": "another size",
        "reason": ATTACK,
    },
    {"kind": "number", "id": "c001", "table": "sec:a", "claim": ATTACK, "unit": "percentage points", "paper": "4.7"}
    | {
        "ours": -1.9,
        "low": -2.6,
        "high": -1.2,
        "verdict": "reverses",
        "size": "another size",
        "reason": "6.6 apart",
        "see": "E1 X9",
    },
    {"kind": "comparison", "id": "c002", "table": "sec:a", "claim": "A beats B.", "verdict": "holds"}
    | {"ours": 3.0, "unit": "percentage points", "reason": "a > b", "note": "by the second score"},
    {
        "kind": "comparison",
        "id": "c003",
        "table": "sec:a",
        "claim": "Settled elsewhere.",
        "verdict": "nothing to reproduce",
    },
)
EFFECTS = (
    {
        "id": "a_b",
        "name": f"A over B {ATTACK}",
        "says": f"A beats B {ATTACK}",
        "said": f"A is 1.9 points behind B {ATTACK}.",
        "unit": "percentage points",
        "paper": 4.7,
        "ours": -1.9,
        "low": -2.6,
    }
    | {"high": -1.2, "constant": 88.0, "verdict": "reverses", "size": "", "cause": "data"}
    | {"because": f"It is known (E1). {QUOTES}", "alone": ""},
    {
        "id": "level",
        "name": "height of C",
        "says": "C is high",
        "said": "C is at 91 %; the paper has 90 %.",
        "unit": "percent",
        "paper": 90.0,
        "ours": 91.0,
        "low": 90.0,
        "high": 92.0,
    }
    | {
        "constant": float("nan"),
        "verdict": "",
        "size": "within 2 points",
        "cause": "reading",
        "because": "As read.",
        "alone": "",
    },
)
SOLVER = {"damping": 0.5, "tolerance": 1e-4, "max_iterations": 200}
HYPERPARAMS = """label,row,column,value
tab,eta,Value,0.4
tab,eta,Description,damping
tab,other,Value,7
tab,other,Description,what no run has
"""
CARRIED = """
cohort: other <b>
version: "0"
settings: "0"
data: "0"
rows: {a_b: [3.0, 2.0, 4.0]}
"""
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="500"><rect width="9" height="9"/></svg>'
PAGE = (
    "<!doctype html><html lang=en><head><meta charset=utf-8><title>inside</title></head><body><h1>{}</h1></body></html>"
)


VOTERS = pd.DataFrame([("a_b", ATTACK, -2.0, -3.0, -1.0, "reverses")], columns=VOTER_COLUMNS)


def comparison_of(lines=LINES):
    table = pd.DataFrame(lines).reindex(columns=COLUMNS)
    numbers = ["paper_n", "ours", "low", "high", "n", "difference"]
    text = [name for name in COLUMNS if name not in (*numbers, "by_definition")]
    table[text] = table[text].astype("object").fillna("").astype("str")
    return table.assign(by_definition=False).astype(dict.fromkeys(numbers, "float64"))


def finished_run(folder, *, origin="simulated"):
    """The run's folder, in `folder`, and the texts that its page is made with."""
    run = folder / "odd & run"
    bundle = bundle_of(np.eye(2), np.zeros((2, 2, 2)), features=(ATTACK, "f"), entities=("v", QUOTES))
    labels = pd.DataFrame({"v": [0, 1]}, index=["p", ATTACK], dtype="Int8")
    provenance = {"origin": origin, "title": QUOTES, "series": "GSE1"}
    provenance["files"] = [{"file": ATTACK, "sha256": "ab" * 32, "form": "mirror"}]
    cohort = Cohort("odd", (ATTACK, "f"), ("p", ATTACK), np.zeros((2, 2), np.int8), labels, provenance)
    write_cohort(cohort, run / "cohort")
    save_bundle(bundle, run / "bundle")
    write_comparison(comparison_of(), run / "comparison", pd.DataFrame(EFFECTS)[SCREEN], VOTERS)
    for name in ("notebooks", "figures", "benchmarks", "published"):
        (run / name).mkdir()
    for part in PARTS:
        (run / "figures" / f"{part}.svg").write_text(PICTURE)
        drawn = nbformat.v4.new_output("execute_result", {"image/svg+xml": PICTURE}, execution_count=1)
        said = nbformat.v4.new_output("display_data", {"text/markdown": f"Of *cohort* {ATTACK}."})
        words = nbformat.v4.new_code_cell("", outputs=[said], metadata={"tags": ["caption"]})
        cells = [nbformat.v4.new_markdown_cell(f"# {part}"), nbformat.v4.new_code_cell("", outputs=[drawn]), words]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), run / "notebooks" / f"{part}.ipynb")
    (run / "explorer.html").write_text(PAGE.format("explorer"))
    (run / "benchmarks" / "stage.tsv").write_text("s\tmax_rss\tcpu_time\n1.5\t100.0\t1.2\n")
    pd.DataFrame({ATTACK: [1]}).to_csv(run / "published" / "tab_a.csv", index=False)
    pd.DataFrame(columns=SUMMARY).to_csv(run / "summary.csv", index=False)
    (run / "config.json").write_text(
        json.dumps(
            {
                "cohort": ATTACK,
                "shards": 4,
                "bootstrap": {"confidence": 0.9},
                "inference": SOLVER,
                "random_order": {"seeds": [0]},
            }
        )
    )
    (run / "provenance.json").write_text(json.dumps(provenance_of(run)))
    return run, texts_of(folder)


def provenance_of(run):
    first = {
        "rule": "stage",
        "outputs": {f"results/{run.name}/tables/stage/a.parquet": "12" * 32},
        "inputs": ["source"],
    }
    second = {"rule": "draw", "outputs": {f"results/{run.name}/notebooks/first.ipynb": "34" * 32}}
    second["inputs"] = [f"results/{run.name}/tables/stage"]
    told = {
        "command": f"afa {ATTACK}",
        "code": ["ab12"],
        "started": "2026-01-01 10:00:00",
        "ended": "2026-01-01 10:00:09",
    }
    environment = {"python": "3.11", "platform": "Linux", "cores": 2, "memory_gib": 8.0, "lock_sha256": "cd" * 32}
    environment["packages"] = {"afa": "0.2"}
    return {
        "environment": environment,
        "made_with": {"numpy 2, scipy 1": ["x"]},
        "jobs": [{**first, **told}, {**second, **told}],
    }


def texts_of(folder):
    paper, docs = texts = folder / "paper", folder / "docs"
    for each in (paper / "carried", docs):
        each.mkdir(parents=True)
    (paper / "carried" / "other.yaml").write_text(CARRIED)
    (paper / "claims.csv").write_text("id\n")
    (paper / "hyperparams.csv").write_text(HYPERPARAMS)
    (docs / "decisions.md").write_text("# Decisions\n\n**M1, energy.** Text & [more](errata.md).\n")
    (docs / "errata.md").write_text(f"# Errata\n\n**E1, `eq:a`.** {ATTACK}\n")
    return texts


def verdicts_of(lines=LINES):
    return count_verdicts(comparison_of(lines))
