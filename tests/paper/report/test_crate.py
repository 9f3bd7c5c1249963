"""A finished run as an RO-Crate."""

import json
import shutil
import subprocess
import sys
from importlib import metadata

import pytest
from rocrate.rocrate import ROCrate

from afa.errors import ReportError
from afa.paper.report.provenance import write_crate

LICENSE = "https://spdx.org/licenses/CC-BY-4.0"
TIMES = {"started": "2026-01-01 10:00:00", "ended": "2026-01-01 10:00:09"}
VALIDATOR = "roc-validator==0.13.0"
# The validator of the profile's authors. It asks the network for the terms of RO-Crate; those of the library stand in.
VALIDATE = """
import json, sys
from pathlib import Path
import requests, rocrate
from rocrate_validator.models import Severity
from rocrate_validator.services import ValidationSettings, validate

terms = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()

def send(adapter, request, **options):
    assert request.url.startswith("https://w3id.org/ro/crate/"), request.url
    answer = requests.Response()
    answer.status_code, answer._content, answer.request, answer.url = 200, terms, request, request.url
    answer.headers["Content-Type"] = "application/ld+json"
    return answer

requests.adapters.HTTPAdapter.send = send
settings = ValidationSettings(rocrate_uri=sys.argv[1], profile_identifier="process-run-crate-0.5",
                              requirement_severity=Severity.REQUIRED, no_cache=True)
result = validate(settings)
profiles = sorted({check.identifier.rpartition("_")[0] for check in result.executed_checks})
faults = [f"{each.check.identifier} {each.message}" for each in result.get_issues()]
print(json.dumps({"profiles": profiles, "faults": faults}))
"""


@pytest.fixture
def run(tmp_path):
    """Two jobs: a stage that read a file of elsewhere and a shard that is gone, and a page of its tables."""
    folder = tmp_path / "results" / "mine"
    (folder / "tables").mkdir(parents=True)
    (folder / "tables" / "a b.csv").write_text("1\n")
    (folder / "report.html").write_text("<p>")
    inputs = {"resources/paper/claims.csv": "ab" * 32, "results/mine/shards/1-of-2": "cd" * 32}
    stage = {"rule": "stage", "outputs": {"results/mine/tables/a b.csv": "12" * 32}, "inputs": inputs}
    page = {"rule": "page", "outputs": {"results/mine/report.html": "34" * 32}}
    page["inputs"] = {"results/mine/tables": "", "results/mine/tables/a b.csv": ""}
    environment = {"python": "3.13.0", "packages": {"afa": "0.1.0", "numpy": "2.4.6"}}
    jobs = [{**job, **TIMES, "command": f"afa {job['rule']}", "code": []} for job in (stage, page)]
    (folder / "provenance.json").write_text(json.dumps({"environment": environment, "jobs": jobs}))
    return folder


def test_a_crate_has_the_files_of_the_run_and_the_jobs_that_made_them(run):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert write_crate(run, LICENSE) == run / "ro-crate-metadata.json"
    crate = ROCrate(run)
    assert {each.id for each in crate.data_entities} == {
        "tables/a%20b.csv",
        "tables/",
        "report.html",
        "provenance.json",
    }
    stage, page = crate.root_dataset["mentions"]
    assert (stage["name"], stage["description"]) == ("stage", "afa stage")
    assert (stage["startTime"], stage["endTime"]) == ("2026-01-01T10:00:00+00:00", "2026-01-01T10:00:09+00:00")
    assert [each["sha256"] for each in stage["object"]] == ["ab" * 32, "cd" * 32]
    assert [each.type for each in stage["object"]] == ["CreativeWork", "CreativeWork"]
    assert [each["sha256"] for each in stage["result"]] == ["12" * 32]
    assert [each.id for each in page["object"]] == ["tables/", "tables/a%20b.csv"]
    assert [each["name"] for each in page["result"]] == ["report.html"]
    assert stage["instrument"]["softwareVersion"] == "0.1.0"
    assert crate.license.id == LICENSE
    assert crate.root_dataset["datePublished"] == "2026-01-01T10:00:09+00:00"
    assert {file: file.read_bytes() for file in before} == before


def test_the_same_run_gives_the_same_crate(run):
    first = write_crate(run, LICENSE).read_bytes()
    assert write_crate(run, LICENSE).read_bytes() == first


@pytest.mark.parametrize("text", [None, "{", "[]", '{"environment": {}, "jobs": []}'])
def test_a_folder_that_is_no_finished_run_is_refused(run, text):
    (run / "provenance.json").unlink()
    if text is not None:
        (run / "provenance.json").write_text(text)
    with pytest.raises(ReportError, match=r"provenance\.json.*run it first"):
        write_crate(run, LICENSE)
    assert not (run / "ro-crate-metadata.json").exists()


@pytest.mark.slow
def test_the_validator_of_the_profile_finds_no_fault(run):
    write_crate(run, LICENSE)
    assert validated(run) == {"profiles": ["process-run-crate-0.5", "ro-crate-1.1"], "faults": []}
    crate = json.loads((run / "ro-crate-metadata.json").read_text())
    (action,) = (each for each in crate["@graph"] if each["@id"] == "#job-1")
    del action["instrument"]
    (run / "ro-crate-metadata.json").write_text(json.dumps(crate))
    assert validated(run)["faults"]


def validated(run):
    """What the validator says; it cannot be installed beside our packages, so uv gives it an environment of its own."""
    uv = shutil.which("uv", path=f"{sys.prefix}/bin") or "uv"
    packages = ["--with", VALIDATOR, "--with", f"rocrate=={metadata.version('rocrate')}"]
    options = ["--no-project", "--isolated", "--system-certs", "--python", sys.executable, *packages]
    done = subprocess.run(
        [uv, "run", *options, "python", "-c", VALIDATE, run], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
