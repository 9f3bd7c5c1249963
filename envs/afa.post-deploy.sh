#!/usr/bin/env bash
# Run by Snakemake in the new environment: install the package that the rules belong to, without its dependencies. The
# rules name its folder, as Snakemake runs this script in the folder of the run, which may be another.
set -euo pipefail
python -m pip install --no-deps --no-build-isolation hatchling
python -m pip install --no-deps --editable "${AFA_SOURCE:?found nothing; expected the folder of the package, which the rules of the workflow set}"
