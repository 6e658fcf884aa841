# Few verbs; each is one line that calls Python. `make demo` and `make test` set up everything they need.
PYTHON ?= python3
INSTANCE ?= demo
RUN = .venv/bin/python

.PHONY: demo test check docs prove bench up down status logs clean

demo: .venv/ready                 ## the stack, the product, three orders; ARGS=--once takes it all back and exits
	$(RUN) -m deploy.local.demo --instance $(INSTANCE) $(ARGS)

test: .venv/ready                 ## everything but the long runs; ARGS go to pytest
	$(RUN) -m tests.all $(ARGS)

check: .venv/ready                ## seconds, no stack: lint, types, import contracts, pure tests
	$(RUN) -m tests.check

docs: .venv/ready                 ## the documentation as a site in build/docs; a warning is an error
	$(RUN) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

prove: .venv/ready                ## the long runs: idle for ten minutes, two hundred orders, killed workers
	$(RUN) -m pytest -m prove $(ARGS)

bench: .venv/ready                ## order to Ready against the same children applied by hand, interleaved in one run
	$(RUN) -m tests.bench $(ARGS)

up: .venv/ready
	$(RUN) -m deploy.local up --instance $(INSTANCE)

down: .venv/ready
	$(RUN) -m deploy.local down --instance $(INSTANCE) $(ARGS)

status: .venv/ready
	$(RUN) -m deploy.local status --instance $(INSTANCE)

logs: .venv/ready                 ## PART=worker
	$(RUN) -m deploy.local logs $(PART) --instance $(INSTANCE)

clean:                            ## forgets the instance and the virtual environment; built programs stay cached
	-$(RUN) -m deploy.local down --forget --instance $(INSTANCE)
	rm -rf .venv

.venv/ready: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: set PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@
