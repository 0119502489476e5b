# Two commands matter: `make serve` and `make test`. Each sets up what it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PORT   ?= 8080
UPSTREAM ?=
ARGS   ?=
CASES  ?= tests/cases
PIP    := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: serve test check fmt cases bench baseline gate gate-release mutants lock clean

serve: $(VENV)/serve.stamp ## start the gateway on 127.0.0.1:$(PORT)
	$(BIN)/tidegate serve --port $(PORT) $(if $(UPSTREAM),--upstream '$(UPSTREAM)') $(ARGS)

test: $(VENV)/dev.stamp ## all four rings
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered $(ARGS)

check: $(VENV)/dev.stamp ## style, types, async traps, specs of mutants, secrets
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/flake8 engine server tests bench evidence
	$(BIN)/mypy
	$(BIN)/python -m evidence.gate.static
	$(BIN)/python -m evidence.gate.secret_scan

fmt: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

cases: $(VENV)/dev.stamp ## the case runner on the folder $(CASES)
	$(BIN)/python -m tests.cases.run --cases $(CASES) $(ARGS)

bench: $(VENV)/dev.stamp ## CPU per request and per chunk, beside nginx
	$(BIN)/python -m bench.cpu $(ARGS)

baseline: $(VENV)/dev.stamp ## whether as many tests pass as each spec says
	$(BIN)/python -m evidence.gate.baseline $(or $(ARGS),--all)

gate: $(VENV)/dev.stamp ## whether the tests behind what changed can be believed, and the suite; all steps run
	$(BIN)/python -m evidence.gate $(ARGS)

gate-release: $(VENV)/dev.stamp ## the same of everything, with every mutant executed
	$(BIN)/python -m evidence.gate --release $(ARGS)

mutants: $(VENV)/dev.stamp ## every mutant executed, and the table of verdicts written anew
	$(BIN)/python -m evidence.gate.mutation --json evidence/figures/mutants.json --page evidence/mutants/README.md $(ARGS)

lock: $(VENV)/dev.stamp ## write both constraints files anew from pyproject.toml
	$(BIN)/pip-compile $(LOCK) --output-file constraints.txt --extra lock pyproject.toml
	$(BIN)/pip-compile $(LOCK) --output-file constraints-dev.txt --all-extras pyproject.toml

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .coverage

LOCK := --quiet --strip-extras --allow-unsafe --generate-hashes --no-header --no-annotate \
        --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

$(VENV)/pip.stamp:
	$(PYTHON) -m venv $(VENV)
	touch $@

# The locked packages are checked by hash; the project itself is then linked in without looking further.
$(VENV)/serve.stamp: $(VENV)/pip.stamp constraints.txt pyproject.toml
	$(PIP) install --require-hashes -r constraints.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/dev.stamp: $(VENV)/serve.stamp constraints-dev.txt
	$(PIP) install --require-hashes -r constraints-dev.txt
	touch $@
