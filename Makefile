# Everything from a bare Python (3.11 or newer) and make; Windows: see the README.
#
#   make demo    continue a motif: out/continuation.mid, .wav and .png
#   make serve   the same in your browser: drop or play a motif, hear and compare takes
#   make test    the tests
#   make check   what a commit must pass: format, lint, types, tests
#
# The first run makes .venv and installs the versions of constraints.txt; later runs need no network.
#   PYTHON       the Python to start from                        make demo PYTHON=python3.12
#   MOTIF        a motif of data/motifs, or a MIDI file          make demo MOTIF=twinkle_melody
#   TORCH_INDEX  where torch alone comes from; by default from where pip is set to look.
#                The small CPU build:  make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu

PYTHON ?= python3
VENV ?= .venv
MOTIF ?= fur_elise_opening
TORCH_INDEX ?=

BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.PHONY: demo serve test check install clean

demo: $(VENV)/.demo
	$(BIN)/python -m music_transformer demo $(MOTIF)

serve: $(VENV)/.demo
	$(BIN)/python -m music_transformer serve

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict
	$(BIN)/python -m pytest

install: $(VENV)/.dev

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.torch: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or newer is needed: make demo PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
ifneq ($(TORCH_INDEX),)
	$(INSTALL) --no-deps --index-url $(TORCH_INDEX) torch
endif
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml constraints.txt
	$(INSTALL) -e ".[audio,plot,web]"
	@touch $@

$(VENV)/.dev: $(VENV)/.torch pyproject.toml constraints.txt
	$(INSTALL) -e ".[dev]"
	@touch $(VENV)/.demo $@
