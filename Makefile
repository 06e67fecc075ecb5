# The commands of the project. `make` alone lists them; tools/dev.py is what they run, and runs without make too.
#
# Needs make and a Python of version 3.11 or newer; everything else is installed into .venv.
# Another Python: `make test PYTHON=/path/to/python`. Another place: `make test VENV=/tmp/venv`.
# Arguments for the command: `make test ARGS="-k rounding"`.

VENV ?= .venv
PYTHON ?=
ARGS ?=
NAMES ?=
OUT ?= out/on_device
COMMANDS := demo test test-full test-pythons test-arm test-libraries notebooks slides test-exhaustive bench lint docs build install clean

.DEFAULT_GOAL := help
.PHONY: help on-device notebooks-update $(COMMANDS)

# Run tools/dev.py with the environment's own Python, or with the first that can make an environment; $(1) is the command.
define dev
@tried=; bare=; for python in $(if $(PYTHON),"$(PYTHON)","$(VENV)/bin/python" python3.13 python3.12 python3.11 python3 python); do \
    version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue; \
    tried="$$tried $$python ($$version)"; \
    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue; \
    "$$python" -c 'import ensurepip, venv' 2>/dev/null || { bare=$$version; continue; }; \
    exec "$$python" tools/dev.py --venv "$(VENV)" $(1); \
done; \
if [ -n "$$bare" ]; then \
    echo "Python $$bare is here, but without its venv and ensurepip modules. Install them, then run make again:"; \
    echo "    Debian, Ubuntu:  sudo apt install python$$bare-venv    (or python3-venv)"; \
else \
    echo "floatsim needs Python 3.11 or newer; found:$${tried:- none}."; \
    echo "Install one (python.org, apt, brew, pyenv, uv), or name it: make PYTHON=/path/to/python3.12 ..."; \
fi >&2; exit 1
endef

help:
	$(call dev)

$(COMMANDS):
	$(call dev,$@ $(ARGS))

notebooks-update:
	$(call dev,$@ $(NAMES))

on-device: # everything that needs a GPU, without installing anything
	bash tools/on_device.sh $(OUT)
