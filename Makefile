# A thin door: every target is one command that snakemake or afa users can type themselves.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# A misspelt choice would run with the defaults.
CHOICES := COHORT BUNDLE RUN SOURCE GEO_MIRROR TABLES PROFILE COHORT_FOLDER MINUTES SEED CASES N PYTHON
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
$(foreach name,$(filter-out $(CHOICES),$(GIVEN)),$(error $(name)=: found an unknown choice; expected one of $(CHOICES)))

CONFIG := $(strip $(if $(COHORT),"cohort=$(COHORT)") $(if $(BUNDLE),"bundle=$(BUNDLE)") $(if $(RUN),"run=$(RUN)") $(if $(SOURCE),"source=$(SOURCE)") $(if $(GEO_MIRROR),"geo_mirror=$(GEO_MIRROR)") $(if $(TABLES),"tables=$(TABLES)"))
SNAKEMAKE := snakemake $(if $(PROFILE),--profile workflow/profiles/$(PROFILE)) $(if $(CONFIG),--config $(CONFIG))

.DEFAULT_GOAL := help
.PHONY: help reproduce league test test-all pythons test-cluster storm fuzz mutants nightly bench lint wheel api schema lock clean

help: ## what the targets do
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

reproduce: $(VENV)/.ready ## the whole workflow on a real cohort, also after a crash; COHORT= BUNDLE= RUN= SOURCE= GEO_MIRROR= PROFILE= choose what and where
	$(SNAKEMAKE)
	@echo "report: results/$(or $(RUN),$(COHORT),gse109142)/report.html"

league: $(VENV)/.ready ## every field with real labels on one page; TABLES= names a folder with those that are not carried
	$(SNAKEMAKE) -- league
	@echo "page: results/league/page/league.html"

# One thread for linear algebra, as jobs of the workflow have: more of them wait for each other on the same processors.
PYTEST := OPENBLAS_NUM_THREADS=1 python -m pytest -n 2 --dist loadscope --no-loadscope-reorder

test: $(VENV)/.ready ## all tests but the slow ones
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.ready ## all tests; as root also those on a full disk
	$(PYTEST)

pythons: $(VENV)/.ready ## the fast tests on every declared Python that is found, with the oldest packages, the newest Snakemake, and sp-repo-review (noxfile.py)
	PATH="$$PATH:$$(printf '%s:' "$$HOME"/.pyenv/versions/3.*/bin)" UV_PYTHON_DOWNLOADS=never nox

test-cluster: $(VENV)/.ready ## the workflow on a Slurm of this machine against a local run; as root, on Debian
	tests/cluster/slurm.sh install
	python -m pytest --durations=3 --durations-min=1 tests/cluster/check_on_slurm.py

storm: $(VENV)/.ready ## random changes, failures and kills of a finished run, for an hour; MINUTES= and SEED= choose others
	python tests/reliability/storm.py --minutes $(or $(MINUTES),60) --seed $(or $(SEED),0)

fuzz: $(VENV)/.ready ## broken and hostile files for every reader, 10,000 each; CASES= and SEED= choose others
	AFA_FUZZ_CASES=$(or $(CASES),10000) AFA_FUZZ_SEED=$(or $(SEED),0) python -m pytest -n 2 tests/fuzz

mutants: $(VENV)/.ready ## changes of the mathematics that its tests must notice: a sample of N=200, by SEED=, in results/mutants.csv
	python tests/mutants.py --sample $(or $(N),200) --seed $(or $(SEED),0) --out results/mutants.csv

nightly: ## what takes hours: every test, every Python, the workflow on Slurm (as root, on Debian), an hour of kills, fuzz, and the default workflow
	$(MAKE) test-all
	$(MAKE) pythons
	$(MAKE) test-cluster
	$(MAKE) storm
	$(MAKE) fuzz
	$(MAKE) reproduce RUN=nightly
	afa carry results/nightly --check --out resources/paper/carried/gse109142.yaml
	afa crate results/nightly --license https://spdx.org/licenses/MIT

bench: $(VENV)/.ready ## speed against a plain NumPy version, and where the seconds of a run go, in results/bench; COHORT_FOLDER= chooses another cohort than the demo
	$(if $(COHORT_FOLDER),,snakemake cohort --config cohort=demo)
	afa bundle build resources/elicitation --out results/bench/bundle
	python benchmarks/bench.py --bundle results/bench/bundle --cohort "$(or $(COHORT_FOLDER),results/demo/cohort)" --out results/bench
	python benchmarks/scale.py --out results/bench
	rm -rf results/profile results/bench/parts && mkdir -p results/bench/parts
	AFA_PARTS="$$PWD/results/bench/parts" PYTHONPATH="$$PWD/benchmarks/hook" snakemake --config run=profile
	python benchmarks/run_parts.py --run results/profile --parts results/bench/parts --out results/bench

lint: $(VENV)/.ready ## formatting, lint, types, import rules, workflow lint
	ruff format --check .
	ruff check .
	mypy
	lint-imports
	snakefmt --check Snakefile workflow
	snakemake --lint

wheel: ## the package by itself, dist/afa-*.whl, without the workflow and without building its environment
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && $(PYTHON) -m venv "$$folder" \
	  && "$$folder/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

api: $(VENV)/.ready ## the reference of the Python interface, build/api/index.html
	python tools/reference.py build/api

schema: $(VENV)/.ready ## config.yaml, its page and schema, the tables of docs/summary.md and the index of equations, from the code
	python tools/pages.py
	python tools/equations.py

lock: ## resolve pyproject.toml again into the hashed lock for every Python from 3.11, which names no registry
	uv pip compile --system-certs pyproject.toml --extra geo --extra workflow --extra notebooks --extra elicitation --extra formats --group dev --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet --output-file envs/requirements.lock

clean: ## remove results only
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +

$(VENV)/.ready: envs/requirements.lock envs/bootstrap.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r envs/bootstrap.lock
	VIRTUAL_ENV="$$PWD/$(VENV)" uv pip sync --quiet --system-certs --require-hashes --compile-bytecode envs/requirements.lock \
	  || { echo "uv could not install the lock; pip, which reads pip.conf, tries now"; \
	       $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r envs/requirements.lock; }
	VIRTUAL_ENV="$$PWD/$(VENV)" uv pip install --quiet --offline --no-deps --no-build-isolation --editable .
	touch $@
