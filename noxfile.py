#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.10.14"]
# ///
"""What needs environments of its own, one for each Python: `nox --list`. All else is `make`, in .venv."""

import nox

PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
FAST = ("-n", "2", "--dist", "loadscope", "--no-loadscope-reorder", "-m", "not slow")

OLDEST = {
    "everything": (("--all-extras", "--group", "dev"), ()),
    "package": (
        ("--extra", "geo", "--extra", "elicitation", "--extra", "formats"),
        ("tests/model", "tests/scores", "tests/engine", "tests/inference", "tests/planner"),
    ),
}

nox.needs_version = ">=2025.10.14"
nox.options.default_venv_backend = "uv"
nox.options.error_on_missing_interpreters = False


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The fast tests on every declared Python that is found, with the packages of the lock; arguments go to pytest."""
    session.install("--system-certs", "--require-hashes", "-r", "envs/requirements.lock")
    session.install("--offline", "--no-deps", "--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "pytest", *(session.posargs or FAST))


@nox.session(python=PYTHONS[0])
@nox.parametrize("what", ["everything", "package"])
def oldest(session: nox.Session, what: str) -> None:
    """The fast tests with the oldest direct dependencies that pyproject.toml allows, on the oldest Python.

    Snakemake and its plugins ask for newer packages than `afa` does, so the package has an environment without them.
    """
    listed = f"{session.create_tmp()}/oldest.txt"
    parts, tests = OLDEST[what]
    resolve = ("uv", "pip", "compile", "--system-certs", "--quiet", "--resolution", "lowest-direct", *parts)
    session.run(*resolve, "--python-version", PYTHONS[0], "-o", listed, "pyproject.toml", external=True)
    session.install("--system-certs", "-r", listed)
    if what == "package":
        session.install("--system-certs", "hypothesis", "pytest", "pytest-xdist", "editables", "hatchling")
    session.install("--offline", "--no-deps", "--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "pytest", *(session.posargs or (*FAST, *tests)))


@nox.session(python=PYTHONS[0])
def newest(session: nox.Session) -> None:
    """The tests of the workflow with the newest Snakemake that pyproject.toml allows, and its newest plugins."""
    session.install("--system-certs", "--require-hashes", "-r", "envs/requirements.lock")
    named = [name for name in PROJECT["project"]["optional-dependencies"]["workflow"] if name.startswith("snakemake")]
    session.install("--system-certs", "--upgrade", *named)
    session.install("--offline", "--no-deps", "--no-build-isolation", "--editable", ".")
    session.run("python", "-m", "pytest", *(session.posargs or (*FAST, "tests/workflow", "tests/reliability")))


@nox.session
def review(session: nox.Session) -> None:
    """What sp-repo-review asks of a project of Scientific Python; pyproject.toml says what it leaves out, and why."""
    session.install("--system-certs", "sp-repo-review[cli]")
    session.run("repo-review", ".")


if __name__ == "__main__":
    nox.main()
