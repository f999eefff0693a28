# Every target works from a bare clone with Python, pip and make. `make help` lists them.

# The first Python that will do; name another one with PYTHON=…
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo "$$p" && exit; \
	done; echo python3)
BOOTSTRAP = $(PYTHON) -I controlplane/stack/bootstrap.py
BIN = .venv/bin
# As modules, not as scripts: a script names the place it was installed at, which a moved checkout is not any more.
LUMINET = $(BIN)/python -m controlplane.cli
# Whole files; a process more than cores, at most 4: tests often wait for what they started. Each process starts the servers its tests ask for.
# Who runs which: tests/suite
PROCESSES ?= $(shell "$(PYTHON)" -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')
PARALLEL = -n $(PROCESSES) --dist loadfile --max-worker-restart 0

.PHONY: help up down clean quick test pictures durations coverage test-kernels test-vllm test-clients check audit ci format lint openapi bench performance soak mutations bench-gpu quality lock lockvllm locklitellm lockclients python

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 16

up: python  ## install what is missing and start everything; Ctrl-C stops it (BACKENDS=paged,vllm: vLLM, too, in the second agent)
	@$(BOOTSTRAP) control && $(if $(BACKENDS),LUMINET_BACKENDS=$(BACKENDS)) exec $(LUMINET) stack up

down:  ## stop what `make up` started from this folder
	@if [ -x $(BIN)/python ]; then $(LUMINET) stack down; else echo "Nothing is installed, so nothing runs."; fi

clean:  ## stop, and delete the environments, the data, the secrets and every cache (asks first; YES=1 does not)
	@if [ -x $(BIN)/python ]; then $(LUMINET) stack clean $(if $(YES),--yes); \
	elif [ -e "$${LUMINET_HOME:-.luminet}" ]; then \
		echo "luminet: there is data in $${LUMINET_HOME:-.luminet} and no .venv to stop it with: make up, then make clean" >&2; exit 1; fi
	@rm -rf .venv .venv-vllm .venv-litellm .venv-clients .node-clients .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

quick: python  ## run the tests that take least: unit tests, contracts and the faster half of the integration tests
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m pytest $(PARALLEL) --quick

test: python  ## run every test but those of `make test-vllm` and `make test-kernels`
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m pytest $(PARALLEL)

test-kernels: python  ## run every combination of the kernels' formats, shapes and implementations, of which `make test` runs pairs
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.kernels

test-vllm: python  ## run the tests that need vLLM: installs it once, in .venv-vllm (about 2.5 GiB), and fails where it cannot
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.vllm.environment

test-clients: python  ## generate API clients in Python and TypeScript and run them (installs the generators once; needs Node.js)
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m tests.clients

pictures: python  ## keep a picture of every page in each theme and size, in .luminet/pictures
	@$(BOOTSTRAP) control dev engine bench && LUMINET_PICTURES=1 exec $(BIN)/python -m pytest tests/e2e/test_every_page.py

durations: python  ## run `make test` and record how long each file takes, by which processes share the files out
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m pytest $(PARALLEL) -p tests.suite.recording

coverage: python  ## run `make test` and compare each package's share of branches with the recorded one (WRITE=1 records it anew)
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.suite.branches $(if $(WRITE),--write) -- $(PARALLEL)

check: python lint test  ## format, lint, types, import contracts, migrations, templates and `make test`

audit: python  ## ask PyPI and npm whether anything that is pinned has a known vulnerability; fails where that cannot be had
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m tests.audit

ci: check  ## what CI runs: `make check`, `make test-kernels` (unless it passed before with the same kernels), `make audit`, `make test-clients`, `make test-vllm`; the last three are skipped with a message if they cannot be installed
	@$(BIN)/python -m tests.kernels.ci
	@$(BIN)/python -m tests.audit.ci
	@$(BIN)/python -m tests.clients.ci
	@exec $(BIN)/python -m tests.vllm.ci

lint: python  ## everything of `check` but the tests
	@$(BOOTSTRAP) control dev engine
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())'
	DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python -m djlint templates --lint --quiet

format: python  ## put code and imports into shape
	@$(BOOTSTRAP) control dev
	$(BIN)/ruff check --fix --quiet . || true
	$(BIN)/ruff format .

openapi: python  ## write docs/openapi.json and the tables of docs/policies.md anew, which the tests compare with the code
	@$(BOOTSTRAP) control dev && DJANGO_SETTINGS_MODULE=tests.settings $(BIN)/python -W error -m tests.web.openapi && exec $(BIN)/python -W error -m tests.support.policy_docs

bench: python  ## measure; writes JSON, a table and plots to .luminet/bench (ROWS="W1 W2" picks, RESUME=1 goes on)
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.bench $(if $(RESUME),--resume) $(ROWS)

performance: python  ## write docs/performance.md, its pictures and the README's figures from what `make bench` measured last
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.bench.report

mutations: python  ## run the covering tests against mutated code: COMMAND="draw …", "run …" or "compare …" (python -m tests.mutations --help)
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.mutations $(or $(COMMAND),--help)

soak: python  ## watch the memory of web, worker and gateway for 20 minutes of good and bad traffic (MINUTES=60); fails where one grows
	@$(BOOTSTRAP) control dev engine bench && exec $(BIN)/python -m tests.soaking --minutes $(or $(MINUTES),20)

# A Python that came with a torch that sees the GPU is taken as it is, unless INSTALL=1: torch for CUDA is a download of 1.4 GB.
bench-gpu: python  ## check and time the kernels on the GPU that is here (ROWS="CHECK" picks, RESUME=1 resumes)
	@if [ ! -e .venv ] && [ -z "$(INSTALL)" ] && "$(PYTHON)" -c 'import numpy, psutil, torch, triton; raise SystemExit(not torch.cuda.is_available())' 2>/dev/null; \
	then exec "$(PYTHON)" -m tests.bench.gpu $(if $(RESUME),--resume) $(ROWS); \
	else $(BOOTSTRAP) engine bench && exec $(BIN)/python -m tests.bench.gpu $(if $(RESUME),--resume) $(ROWS); fi

quality: python  ## measure what each KV format costs in quality on the demo model, and judge it (plot in .luminet/quality)
	@$(BOOTSTRAP) control engine bench && exec $(LUMINET) quality --plots .luminet/quality

lock: python  ## pin every dependency anew in constraints.txt
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m controlplane.stack.lock

lockvllm: python  ## pin all that is installed for vLLM anew in constraints-vllm.txt
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m controlplane.stack.vllm_env

locklitellm: python  ## pin all that `make bench` installs to measure beside LiteLLM anew in constraints-litellm.txt
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m tests.bench.litellm_env

lockclients: python  ## pin all that is installed to generate Python clients again in constraints-clients.txt
	@$(BOOTSTRAP) control dev && exec $(BIN)/python -m tests.clients.environment

python:
	@command -v "$(PYTHON)" >/dev/null || { echo "luminet: there is no $(PYTHON) here: install Python 3.11, 3.12 or 3.13, or name one with PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[0] < 3)' || { echo "luminet: $(PYTHON) is Python 2: name a Python 3.11, 3.12 or 3.13 with PYTHON=/path/to/python3" >&2; exit 1; }
