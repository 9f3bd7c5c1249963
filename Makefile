# A thin door: every target is one command that snakemake or afa users can type themselves.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

CONFIG := $(strip $(if $(COHORT),"cohort=$(COHORT)") $(if $(BUNDLE),"bundle=$(BUNDLE)") $(if $(RUN),"run=$(RUN)") $(if $(GEO_MIRROR),"geo_mirror=$(GEO_MIRROR)"))
SNAKEMAKE := snakemake $(if $(PROFILE),--profile workflow/profiles/$(PROFILE)) $(if $(CONFIG),--config $(CONFIG))

.DEFAULT_GOAL := help
.PHONY: help reproduce doctor test test-all fuzz bench lint wheel api lock clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

reproduce: $(VENV)/.ready ## the whole workflow, also after a crash; COHORT= BUNDLE= RUN= GEO_MIRROR= PROFILE= choose what and where
	$(SNAKEMAKE)
	@echo "report: results/$(or $(RUN),$(COHORT),demo)/report.html"

doctor: $(VENV)/.ready ## what would stop or spoil that run, before it starts; the same choices, and NETWORK=1 asks servers too
	afa doctor $(if $(PROFILE),--profile $(PROFILE)) $(if $(NETWORK),--network) $(if $(CONFIG),--config $(CONFIG))

test: $(VENV)/.ready ## all tests but the slow ones
	python -m pytest -n 2 --dist loadscope -m "not slow"

test-all: $(VENV)/.ready ## all tests; as root also those on a full disk
	python -m pytest -n 2 --dist loadscope

test-cluster: $(VENV)/.ready ## the workflow on a Slurm of this machine against a local run; as root, on Debian
	tests/cluster/slurm.sh install
	python -m pytest --durations=3 --durations-min=1 tests/cluster/check_on_slurm.py

fuzz: $(VENV)/.ready ## broken and hostile files for every reader, 10,000 each; CASES= and SEED= choose others
	AFA_FUZZ_CASES=$(or $(CASES),10000) AFA_FUZZ_SEED=$(or $(SEED),0) python -m pytest -n 2 tests/fuzz

bench: $(VENV)/.ready ## speed against a plain NumPy version, in results/bench; COHORT_FOLDER= chooses another cohort than the demo
	$(if $(COHORT_FOLDER),,snakemake results/demo/cohort)
	afa bundle build resources/elicitation --out results/bench/bundle
	python benchmarks/bench.py --bundle results/bench/bundle --cohort "$(or $(COHORT_FOLDER),results/demo/cohort)" --out results/bench
	python benchmarks/scale.py --out results/bench

lint: $(VENV)/.ready ## formatting, lint, types, import rules, workflow lint
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint

wheel: $(VENV)/.ready ## the package by itself, dist/afa-*.whl, without the workflow
	python -m hatchling build -t wheel

api: $(VENV)/.ready ## the reference of the Python interface, build/api/index.html
	python -m afa.report.api build/api

lock: ## resolve pyproject.toml again into the hashed lock, which names no registry
	uv pip compile --system-certs pyproject.toml --extra dev --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet --output-file envs/requirements.lock

clean: ## remove results only
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +

$(VENV)/.ready: envs/requirements.lock envs/bootstrap.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --require-hashes -r envs/bootstrap.lock
	VIRTUAL_ENV=$(CURDIR)/$(VENV) uv pip sync --quiet --system-certs --require-hashes --compile-bytecode envs/requirements.lock \
	  || { echo "uv could not install the lock; pip, which reads pip.conf, tries now"; \
	       $(VENV)/bin/python -m pip install --quiet --require-hashes -r envs/requirements.lock; }
	$(VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(VENV)/bin/python -m afa.engine.warm
	touch $@
