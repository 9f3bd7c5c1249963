#!/usr/bin/env bash
# Run by Snakemake in the new environment: install the package from this checkout, without its dependencies.
set -euo pipefail
python -m pip install --no-deps --no-build-isolation hatchling
python -m pip install --no-deps --editable "$PWD"
