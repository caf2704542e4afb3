# Every target works from a fresh clone; `make` alone lists them.
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Test processes side by side; 0 runs everything in one. Spark tests share one of them (tests/conftest.py). There are
# more than cores because tests of servers and deadlines spend half of their time waiting.
WORKERS ?= 4
PYTEST = TMPDIR="$$(scripts/scratch.sh)" $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
PYTEST_ARGS ?=
# Single tests take minutes, also side by side. What passed on the same committed tree is not run again (tests/continuing.py).
DEEP = $(PYTEST) --deep --timeout 1500 -p tests.continuing
# Who else than the warm engine of `make test` can move the rows of the contract suite.
OTHER_ENGINES = local cluster connect
# Threads move the rows of these, and once more Spark.
STREAMS = tests/streams tests/engine/test_*streams*.py
# Hundreds of tests start a command: each would compile every module again where Python may not keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE
# Found when a recipe needs it, so that the other targets work without Java.
JAVA = JAVA_HOME="$$(scripts/java.sh)" && export JAVA_HOME

.DEFAULT_GOAL := help
.PHONY: help setup demo test suite test-fast test-all lint format bench docs jar services clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv with the tested versions of everything (instant the second time)

$(STAMP): pyproject.toml constraints.txt
	@rm -f $@
	@python=$$(scripts/python.sh) && echo "setup: $(VENV) with $$python (the first time downloads more than half a gigabyte)" && "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP)  ## run the tour; needs Python, Java and the package index only
	@{ [ "$$EMATIX_FLOW_ENGINE" = local ] || $(JAVA); } && $(BIN)/python examples/demo/run.py

# Types are checked while tests wait for servers: they have the cores to themselves for two thirds of the time only.
test: services  ## lint and the tests, against real Spark and real servers (about twenty minutes on two cores)
	@$(MAKE) --no-print-directory -j2 lint suite

suite: $(STAMP)
	@$(JAVA) && $(PYTEST) $(PYTEST_ARGS)

test-all: lint services  ## everything: more kills and histories, every lake, every engine (hours; goes on where it was stopped)
	@$(JAVA) && $(DEEP) $(PYTEST_ARGS)
	@$(JAVA) && $(DEEP) -m "not spark" --stream-engine spark $(STREAMS)
	@$(JAVA) && for engine in $(OTHER_ENGINES); do $(DEEP) tests/contracts --contract-engine $$engine || exit 1; done

test-fast: WORKERS = 2  # nothing here waits, and every process has to load what it tests
test-fast: $(STAMP)  ## ruff and the tests that need neither Spark nor a server
	$(BIN)/ruff check --quiet
	@$(PYTEST) -m "not spark and not service and not crash and not slow" $(PYTEST_ARGS)

lint: $(STAMP)  ## style, types, the direction of imports and the words of names
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/python scripts/words.py

format: $(STAMP)  ## let ruff rewrite what it can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

services: $(STAMP)  ## make sure that the servers which the tests start are installed
	@$(JAVA) && $(BIN)/python -m tests.services.installed

bench: $(STAMP) services  ## measure against plain PySpark, dlt, 1.0.0 and hand-written SQL (BENCH_ARGS="--case append")
	@$(JAVA) && $(BIN)/python bench/run.py $(BENCH_ARGS)

docs: $(STAMP)  ## write the generated pages of docs/ again
	@$(BIN)/python scripts/docs.py

jar: $(STAMP)  ## make the jar of our Java classes again; needs a JDK, and a run that has fetched Delta
	@$(BIN)/python scripts/jar.py

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
