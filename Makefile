# floatsim: what can be done, and how. `make` alone lists it.
#
# Needs make and a Python of version 3.11 or newer; everything else is installed into .venv. The first run of a
# target needs the network, later runs do not: stamp files in .venv say what is installed already.
# Another Python: `make test PYTHON=/path/to/python`. Another place: `make test VENV=/tmp/venv`.

VENV ?= .venv
PYTHON ?=
OUT ?= out/on_device
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-pythons test-libraries notebooks notebooks-update test-exhaustive bench on-device lint \
	build clean

help: ## this list
	@echo "floatsim: low-precision floating point, bit for bit. Targets:"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-24s%s\n", $$1, $$2 }'
	@echo
	@echo "All but on-device create $(VENV) and install what they need; PYTHON=... chooses the interpreter (3.11 or newer)."

demo: $(VENV)/.installed ## the main job: survey real matrices in every format, write one picture
	$(BIN)/floatsim survey

test: $(VENV)/.installed-test ## the quick tests
	$(PYTEST) -n 2 --dist loadfile -m "not full"

test-full: $(VENV)/.installed-test ## all tests
	$(PYTEST) -n 2

test-pythons: ## tests that depend on versions, under every Python here and with the lowest versions
	tools/test_pythons.sh

test-libraries: $(VENV)/.installed-libraries ## exchange of arrays with torch and JAX, floatsim.torch and its notebooks
	$(PYTEST) tests/arrays tests/operators tests/training tests/hardware tests/test_docs.py -k "test_torch or test_jax or test_interop or with_libraries"
	$(PYTEST) tests/torch_emulation floatsim/torch tests/testing/test_real_kernels.py
	$(BIN)/python notebooks/run.py 07_pytorch 09_twin

notebooks: $(VENV)/.installed-notebooks ## run the notebooks and compare with what is stored, in at most ten minutes
	$(BIN)/python notebooks/run.py

notebooks-update: $(VENV)/.installed-notebooks ## run those that are stale, or NAMES="01_bits ...", and store what comes out
	$(BIN)/python notebooks/run.py --update $(NAMES)

test-exhaustive: $(VENV)/.installed-test ## whole input spaces (long; resumes where it was stopped)
	$(BIN)/python -m tests.exhaustive

bench: $(VENV)/.installed-bench ## speed against other libraries, in one interleaved run (twenty minutes, forty with AVX-512)
	$(BIN)/python -m benchmarks.guard
	$(BIN)/python -m benchmarks

lint: $(VENV)/.installed-dev ## ruff (rules and format), mypy, and the generated types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/write_stubs.py --check

build: $(VENV)/.installed ## the wheel, into dist/
	$(PIP) wheel --no-deps --wheel-dir dist .

on-device: ## everything that needs a GPU, without installing anything: make on-device OUT=folder
	bash tools/on_device.sh $(OUT)

clean: ## remove .venv, caches and build results
	rm -rf $(VENV) .venv-* build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the environment -------------------------------------------------------------------------------------------

# The test and dev extras contain the package, so a later `make demo` has nothing to install. Without --no-compile, pip
# compiles every module of every package, which takes twenty seconds; Python compiles those that it imports.
$(VENV)/.installed: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e ".[test]"
	@touch $(VENV)/.installed $@

$(VENV)/.installed-libraries: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e ".[test-libraries]"
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e ".[dev]"
	@touch $(VENV)/.installed $(VENV)/.installed-test $@

$(VENV)/.installed-notebooks: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e ".[notebooks]"
	@touch $(VENV)/.installed $@

$(VENV)/.installed-bench: pyproject.toml | $(VENV)/.created
	$(PIP) install --no-compile -e ".[bench]"
	@touch $(VENV)/.installed $@

$(VENV)/.created:
	@tried=; bare=; for python in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3 python); do \
	    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
	    tried="$$tried $$python ($$version)"; \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue; \
	    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare=$$version; continue; }; \
	    echo "Creating $(VENV) with $$python ($$version)"; \
	    "$$python" -m venv "$(VENV)" && touch $@; exit; \
	done; \
	if [ -n "$$bare" ]; then \
	    echo "Python $$bare is here, but without its venv and ensurepip modules. Install them, then run make again:"; \
	    echo "    Debian, Ubuntu:  sudo apt install python$$bare-venv    (or python3-venv)"; \
	else \
	    echo "floatsim needs Python 3.11 or newer; found:$${tried:- none}."; \
	    echo "Install one (python.org, apt, brew, pyenv, uv), or name it: make PYTHON=/path/to/python3.12 ..."; \
	fi >&2; exit 1
