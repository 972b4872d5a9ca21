# Needs Python 3.11 or newer, make and PyPI; `make kube` also Go. The first target that needs them makes .venv and
# installs the versions of constraints.txt; afterwards only when pyproject.toml or constraints.txt changed.

VENV := .venv
STAMP := $(VENV)/.installed
BIN := $(VENV)/bin

# What the programs of the tests import.
KITS := PYTHONPATH=tests:tests/kits

# The first that is new enough. Asked by running it: pyenv's shims exist also for versions that are not selected.
ifeq ($(origin PYTHON), undefined)
PYTHON := $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
ifeq ($(PYTHON),)
PYTHON := python3
endif
endif

# Where nothing compiled may be kept, every process of the tests compiles all of Hostler again, and rewrites all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo up stack check test test-all faults histories kube lint format bench constraints runbook rbac crds translations clean
.DEFAULT_GOAL := help

help:  ## What can be made
	@grep -hE '^[a-z-]+:.*  ## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*  ## (.*)/make \1|\2/' | \
		while IFS='|' read -r target words; do printf '%-18s %s\n' "$$target" "$$words"; done

$(STAMP): pyproject.toml constraints.txt tools/bootstrap.py
	@command -v $(PYTHON) >/dev/null || { echo "error: Hostler needs Python 3.11 or newer, and there is no $(PYTHON)." \
		"Install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) tools/bootstrap.py $(VENV)
	@touch $(STAMP)

install: $(STAMP)  ## The virtual environment in .venv

demo: $(STAMP)  ## One machine's life in half a minute; PROVIDER=azure or gcp for another cloud, KUBE=real after `make kube`
	@$(if $(filter real,$(KUBE)),$(KITS)) $(BIN)/python $(if $(filter real,$(KUBE)),-m apiserver.real $(BIN)/python) -m starter.local.demo $(PROVIDER)

up: $(STAMP)  ## Temporal, the simulated cloud and cluster, and a worker, until Ctrl-C; ARGS="--provider gcp"
	@$(BIN)/hostler up $(ARGS)

stack: $(STAMP)  ## docker-compose.yml and its demo without Docker, until Ctrl-C; needs Linux, root, Go and PostgreSQL
	@$(KITS) $(BIN)/python -m stack

# Most tests wait for a server or for time to pass: three processes keep two cores busy. With four, deadlines of seconds
# pass before a busy machine comes to what they are about.
JOBS ?= 3

# By files: their tests share servers, and parts of the fault matrix run ahead of their tests.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder

# They wait for nothing: a process for each core.
check: $(STAMP)  ## Tests that need no server, within a minute
	@$(BIN)/python -m pytest -n auto --dist worksteal tests/unit -m "not exhaustive" $(ARGS)

test: $(STAMP)  ## What a change should pass; ARGS="tests/system/test_up.py -x" for some, JOBS=0 in one process
	@$(PYTEST) $(or $(ARGS),-m "not exhaustive and (not system or core)")

test-all: $(STAMP)  ## All tests, with the variations that CI leaves out
	@$(PYTEST) $(ARGS)

kube: $(STAMP)  ## A real control plane for the tests, built with Go (ten minutes, once) into .cache/kube
	@$(KITS) $(BIN)/python -m apiserver.build

lint: $(STAMP)  ## ruff, mypy, and the imports of what mypy does not read
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python tools/imports.py
	@$(BIN)/mypy

format: $(STAMP)  ## Let ruff write
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

faults: $(STAMP)  ## Every fault at every boundary of every flow
	@HOSTLER_FAULTS=all $(BIN)/python -m pytest tests/system/faults $(ARGS)

bench: $(STAMP)  ## Every program in bench/
	@for program in bench/[a-z]*.py; do \
		test -e "$$program" || { echo "bench/ holds no programs"; exit 1; }; \
		echo "== $$program"; $(BIN)/python "$$program" || exit 1; done

constraints: $(STAMP)  ## Write constraints.txt from what is installed
	@$(BIN)/python tools/constraints.py > constraints.new && mv constraints.new constraints.txt

runbook: $(STAMP)  ## Write docs/runbook.md from resources/reasons/
	@$(BIN)/python tools/runbook.py > runbook.new && mv runbook.new docs/runbook.md

translations: $(STAMP)  ## Write docs/openshift-specs.md from resources/clouds
	@$(BIN)/python tools/translations.py > translations.new && mv translations.new docs/openshift-specs.md

rbac: $(STAMP)  ## Write deploy/rbac from resources/rights.py
	@$(BIN)/python tools/rbac.py deploy/rbac

crds: $(STAMP)  ## Write deploy/crds from resources/machine_config
	@$(BIN)/python tools/crds.py deploy/crds

clean:  ## Remove the environment and caches. The state of `make up` stays: `hostler up --fresh` forgets it
	rm -rf $(VENV) .cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

histories: $(STAMP)  ## Record the histories that the replay test replays
	@$(KITS) $(BIN)/python -m histories.record
