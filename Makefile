# Two commands matter: `make run` and `make test`. Each sets up what is missing first.

SHELL := /bin/sh
PYTHON := .venv/bin/python
SETUP := python3 tools/environment.py
# Processes that run tests; 0 for one that a debugger can be attached to. Tests wait for timers and
# disks nearly half of their time, so that two for each of two cores keep these busy.
# In CI two do: a machine that others share makes late what a test waits for.
JOBS := $(if $(CI),2,4)

.DEFAULT_GOAL := help
.PHONY: help run build package test test-all add-ons crash storm power fuzz-store full-disk stalled-disk large-stream history-states bridge-faults bridge-links many-bindings fuzz mutants soak hostile hostile-names spark-clusters bench bench-store lint demo docs lock advisories clean fresh-root test-environment

run:  ## start the appliance: broker, web app and reports (options: ARGS="--amqp-port 5673")
	@$(SETUP) start
	@($(SETUP) reports &); exec $(PYTHON) manage.py serve $(ARGS)

build:  ## set up everything that `run` needs, without starting it
	@$(SETUP) run

test: test-environment  ## run the tests but the slowest, four files at a time (options: ALL=1 with them, JOBS=0 ARGS="-k confirms -x")
	@$(PYTHON) -m pytest -n $(JOBS) --dist loadfile $(if $(CI)$(ALL)$(ARGS),,-m "not slow") $(ARGS)

test-all:  ## run all tests, as CI does
	@$(MAKE) test ALL=1

test-environment:
	@$(SETUP) test

add-ons: test-environment  ## take each add-on away alone and run the core tests without it
	@ADD_ONS=each $(PYTHON) -m pytest tests/addons $(ARGS)

crash: test-environment  ## crash states, games, then kill -9 under load (ARGS="--states 100000 --games 5000 --cycles 1000")
	@$(PYTHON) -m tests.crash $(ARGS)

storm: test-environment  ## operators purge, delete and change all they can under load (options: ARGS="--seconds 600 --seed 7")
	@$(PYTHON) -m tests.crash.storm $(ARGS)

power: test-environment  ## cut the power of a file system under load; root, loop devices (ARGS="--cuts 200 --history")
	@$(PYTHON) -m tests.crash.power $(ARGS)

fuzz-store: test-environment  ## start on damaged files again and again (options: ARGS="--rounds 2000")
	@$(PYTHON) -m tests.crash.fuzz $(ARGS)

full-disk: test-environment  ## fill a small disk again and again, drain it, lose nothing (options: ARGS="--rounds 10")
	@$(PYTHON) -m tests.store.full_disk $(ARGS)

large-stream: test-environment  ## a stream of 1 GB on a disk of 100 MB, written and read; root, for the disk
	@LEVERET_TEST_STREAM_BYTES=1000000000 LEVERET_TEST_DISK_BYTES=100000000 LEVERET_TEST_SECONDS_MAX=3600 $(PYTHON) -m pytest -q -n 0 tests/tiers/test_over_amqp.py -k larger $(ARGS)

history-states: test-environment  ## start on the states that a power cut can leave of tiers, index and history (options: ARGS="--states 2000")
	@$(PYTHON) -m tests.crash.history_states $(ARGS)

bridge-faults: test-environment  ## kills, cuts, blocks and refusals while shovels and links carry (ARGS="--cycles 500 --kind link")
	@$(PYTHON) -m tests.bridges $(ARGS)

bridge-links: test-environment  ## two thousand links of federation at once: their memory, and that they hold up nobody
	@LEVERET_TEST_LINKS=2000 LEVERET_TEST_SECONDS_MAX=1800 $(PYTHON) -m pytest -q -n 0 tests/bridges/test_many.py $(ARGS)

many-bindings: test-environment  ## a hundred thousand bindings of ordinary kinds fit one exchange
	@LEVERET_TEST_BINDINGS=100000 $(PYTHON) -m pytest -q -n 0 tests/oracles/test_routing.py $(ARGS)

fuzz: test-environment  ## send ten million mutants through every listener, two hours at most (ARGS="--seconds 600 --door tcp")
	@$(PYTHON) -m tests.fuzz $(ARGS)

mutants: test-environment  ## change one line of the broker at a time: which changes do the tests notice (ARGS="--count 60 --seed 12")
	@$(PYTHON) -m tests.mutants $(ARGS)

soak: test-environment  ## half an hour of mixed load, kills and attackers; nothing is lost, nothing grows (ARGS="--minutes 120")
	@$(PYTHON) -m tests.soak $(ARGS)

hostile: test-environment  ## what one user can do to others, in full size: objects, bombs, floods (ARGS="--only bindings")
	@$(PYTHON) -m tests.hostile $(ARGS)

hostile-names: test-environment  ## every page of a thing with all forty names that attack a page, in a real browser
	@LEVERET_TEST_NAMES=all LEVERET_TEST_SECONDS_MAX=14400 $(PYTHON) -m pytest -q -n 0 tests/web/test_every_page.py

package:  ## build the package and install it, with reports, into a new environment: build/package/bin/leveret
	python3 -m venv --clear build/package
	build/package/bin/pip install --quiet '.[reports]'
	build/package/bin/leveret ctl version

spark-clusters: test-environment  ## compute a report on Spark with two workers and through Spark Connect
	@$(PYTHON) -m tests.reports.clusters

stalled-disk: test-environment  ## let the disk not answer for a while; consuming goes on (options: ARGS="--seconds 30")
	@$(PYTHON) -m tests.store.stalled_disk $(ARGS)

bench: test-environment  ## measure messages per second and CPU per message, beside RabbitMQ
	@$(PYTHON) -m tests.bench $(ARGS)

bench-store: test-environment  ## measure the storage engine row by row (options: ARGS="--only T-Q4 --quick")
	@$(PYTHON) -m tests.bench.store $(ARGS)

lint: test-environment  ## ruff, mypy, stubtest, cython-lint, generated files
	@$(PYTHON) tools/lint.py

demo: build  ## a small shop against the running appliance (options: ARGS="--seconds 60")
	@exec $(PYTHON) manage.py demo $(ARGS)

docs: build  ## write the generated documents again
	@$(PYTHON) tools/configuration_page.py
	@$(PYTHON) tools/command_line_page.py
	@$(PYTHON) tools/security_page.py
	@$(PYTHON) tools/control_socket_page.py
	@$(PYTHON) tools/paths_page.py

lock: test-environment  ## note the installed versions in the lock files
	@$(PYTHON) tools/lock.py

advisories: test-environment  ## compare the lock files with a database of known flaws (DATABASE=directory)
	@$(PYTHON) tools/advisories.py "$(DATABASE)"

fresh-root:  ## prove the two commands on a new minimal Debian (root, debootstrap)
	@sh tools/fresh_root.sh $(ARGS)

clean:  ## remove what was built; data and the virtual environment stay
	@rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find broker tests -name '*.so' -delete
	@find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
