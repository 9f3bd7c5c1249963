"""Where the seconds of a run go: what each process measures of itself, and the table by stage."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from run_parts import profile  # noqa: E402


def test_a_process_writes_its_rule_and_what_its_imports_and_tables_took(tmp_path):
    log = tmp_path / "logs/sign_shard/1-of-2.log"
    log.parent.mkdir(parents=True)
    code = "import pandas; pandas.DataFrame({'x': range(50_000)}).to_csv('x.csv'); sum(range(3_000_000))"
    environment = {**os.environ, "AFA_PARTS": str(tmp_path), "PYTHONPATH": str(ROOT / "benchmarks/hook")}
    with log.open("w") as stream:
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=stream, check=True)
    (written,) = tmp_path.glob("*.json")
    line = json.loads(written.read_text())
    assert line["rule"] == "sign_shard"
    assert all(line[part] > 0.005 for part in ("interpreter", "imports", "tables", "computing")), line


def test_stages_have_their_jobs_parts_and_the_rest(tmp_path):
    run, parts = tmp_path / "run", tmp_path / "parts"
    for job, processor in {
        "sign_shard/1-of-2": 3,
        "sign_shard/2-of-2": 4,
        "sign_summary": 2,
        "chaos_notebook": 6,
    }.items():
        path = run / "benchmarks" / f"{job}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("s\tmax_rss\tcpu_time\n5.0\t300.0\t0.1\n")
        path.with_suffix(".times").write_text(f"0m0.000s 0m0.000s\n0m{processor}.000s 0m0.000s\n")
    lines = [
        {"rule": "sign_shard", "program": "afa", "imports": 1.0, "computing": 1.5},
        {"rule": "sign_summary", "program": "afa", "imports": 1.0},
        {"rule": "chaos_notebook", "program": "afa", "interpreter": 0.5, "imports": 2.0, "figures": 1.0},
        {"rule": "", "program": "snakemake", "computing": 8.0},
        {"rule": "", "program": "somebody_else", "computing": 99.0},
    ]
    parts.mkdir()
    (parts / "1.json").write_text("\n".join(map(json.dumps, lines)))
    table = profile(run, parts)
    assert table.index.tolist() == ["sign", "Snakemake itself", "notebooks", "all"]
    shown = ["jobs", "wall", "processor", "interpreter", "imports", "computing", "figures", "other"]
    assert table.loc["sign", shown].tolist() == pytest.approx([3, 15, 9, 0, 2, 1.5, 0, 5.5])
    assert table.loc["notebooks", shown].tolist() == pytest.approx([1, 5, 6, 0.5, 2, 0, 1, 2.5])
    assert table.loc["Snakemake itself", shown].tolist() == pytest.approx([0, 0, 8, 0, 0, 8, 0, 0])
    assert table.loc["all", "processor"] == pytest.approx(23)
