"""Provenance: every job behind a result, once, in order, with the digests of what it made."""

import json
import os
from dataclasses import replace

import pytest

from afa.errors import ReportError
from afa.io.files import sha256_of
from afa.paper.report.page import upstream
from afa.paper.report.provenance import Job, Records, check_jobs, environment, trace, write_provenance


def job(rule, outputs, inputs):
    return Job(rule, dict.fromkeys(outputs, ""), dict.fromkeys(inputs, ""), f"make {rule}", ("ab",), "", "")


MADE = {
    "raw": job("fetch", ["raw"], ["web.yaml"]),
    "table": job("compute", ["table"], ["raw", "settings"]),
    "a.svg": job("draw", ["a.svg"], ["table", "raw"]),
    "a.pdf": job("draw", ["a.pdf"], ["table", "raw"]),
    "b.svg": job("other", ["b.svg"], ["settings"]),
}


def test_every_job_stands_once_and_after_what_it_needs():
    jobs = trace(["a.svg", "a.pdf", "b.svg"], MADE.get)
    assert [each.rule for each in jobs] == ["fetch", "compute", "draw", "other"]
    assert set(jobs[2].outputs) == {"a.svg", "a.pdf"}


def test_what_no_rule_made_has_no_job():
    assert trace(["web.yaml"], MADE.get) == []


def test_upstream_of_a_figure_leaves_out_what_it_does_not_need():
    jobs = [
        {"rule": "fetch", "outputs": {"run/raw/x.csv": "1", "run/raw/y.csv": "2"}, "inputs": []},
        {"rule": "aside", "outputs": {"run/rawer": "3"}, "inputs": []},
        {"rule": "draw", "outputs": {"run/a.svg": "4"}, "inputs": ["run/raw"]},
        {"rule": "later", "outputs": {"run/page": "5"}, "inputs": ["run/a.svg"]},
    ]
    assert [each["rule"] for each in upstream("run/a.svg", jobs)] == ["fetch", "draw"]


def test_the_file_has_the_digest_of_every_file_made_a_folder_file_by_file(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.csv").write_text("1\n")
    (tmp_path / "folder" / ".snakemake_timestamp").write_text("")
    (tmp_path / "one").write_text("2\n")
    lock = tmp_path / "lock"
    lock.write_text("numpy==2\n")
    made = [job("both", ["folder", "one"], []), job("gone", ["removed"], [])]
    write_provenance(made, tmp_path / "p.json", root=tmp_path, lock=lock)
    told = json.loads((tmp_path / "p.json").read_text())
    digests = {name: sha256_of(tmp_path / name) for name in ("folder/x.csv", "one")}
    assert [each["outputs"] for each in told["jobs"]] == [digests, {}]
    assert told["environment"]["lock_sha256"] == sha256_of(lock)


def test_the_environment_says_what_numbers_depend_on(tmp_path):
    (tmp_path / "lock").write_text("")
    told = environment(tmp_path / "lock")
    assert told["cores"] <= os.cpu_count()
    assert {"afa", "pyarrow", "matplotlib"} <= set(told["packages"])
    assert "numpy" not in told["packages"]  # with what numbers were made each job's record says


def test_the_packages_are_those_recorded_with_each_job_and_not_those_installed_now(tmp_path):
    (tmp_path / "lock").write_text("")
    old, new = "numpy 1.26.0, scipy 1.11.0", "numpy 2.0.0, scipy 1.11.0"
    made = [job("old", ["a"], []), job("new", ["b"], []), job("new", ["c"], []), job("settings", ["d"], [])]
    made = [replace(each, packages=packages) for each, packages in zip(made, [old, new, new, ""], strict=True)]
    write_provenance(made, tmp_path / "p.json", root=tmp_path, lock=tmp_path / "lock")
    told = json.loads((tmp_path / "p.json").read_text())
    assert told["made_with"] == {old: ["old"], new: ["new"]}
    assert [each["packages"] for each in told["jobs"]] == [old, new, new, ""]


def test_a_place_where_no_workflow_ran_is_named(tmp_path):
    with pytest.raises(ReportError, match=r"no such folder; expected Snakemake's folder"):
        Records(tmp_path / ".snakemake")


def test_a_run_that_kept_no_records_has_no_jobs(tmp_path):
    assert Records(tmp_path).job("a.svg") is None


def test_a_file_that_has_changed_since_it_was_read_is_named(tmp_path):
    (tmp_path / "table").write_text("1\n")
    read = replace(job("draw", ["a.svg"], []), inputs={"table": sha256_of(tmp_path / "table"), "shards/1": "ab"})
    check_jobs([read], tmp_path)
    (tmp_path / "table").write_text("2\n")
    with pytest.raises(ReportError, match=r"table: found another content; expected what draw read to make a\.svg"):
        check_jobs([read], tmp_path)


def test_records_are_those_that_snakemake_wrote(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    digest = "0123456789abcdef"
    record = {"rule": "draw", "input": ["table"], "shellcmd": "afa draw\n  --seed 1", "starttime": 0.0, "endtime": 61.0}
    record["params"] = ["'--seed 1'", f"'{digest}{digest[::-1]} numpy 2.0.0, scipy 1.11.0'", "7"]
    record["input_checksums"] = {"table": "sha256:ab"}
    _write("a.svg", record, tmp_path / ".snakemake")
    records = Records(tmp_path / ".snakemake")
    assert records.job("a.svg") == Job(
        rule="draw",
        outputs={"a.svg": ""},
        inputs={"table": "ab"},
        command="afa draw --seed 1",
        code=(digest, digest[::-1]),
        started="1970-01-01 00:00:00",
        ended="1970-01-01 00:01:01",
        packages="numpy 2.0.0, scipy 1.11.0",
    )
    assert records.job("b.svg") is None


def _write(output, values, folder):
    from snakemake.persistence import MetadataRecord  # noqa: PLC0415 (slow to import)
    from snakemake.persistence.file import FilePersistence  # noqa: PLC0415

    FilePersistence(nolock=True, path=folder)._write_record(output, MetadataRecord(**values))
