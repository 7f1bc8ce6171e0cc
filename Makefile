# Two commands on a fresh machine: `make demo` and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

# the libraries one would pick instead, in an environment of their own
BENCH := .venv-bench
BENCH_PYTHON := $(BENCH)/bin/python
BENCH_STAMP := $(BENCH)/.installed

.PHONY: setup demo test test-slow smoke lint bench-setup bench bench-quality bench-check docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml setup.py constraints.txt $(wildcard src/credent/native/*.[ch])
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,docs]'
	touch $(STAMP)

demo: setup
	$(VENV)/bin/credent demo --out demo

# two workers that both let every product take all cores are slower than two that do not
test test-slow: export OMP_NUM_THREADS = 1

test: setup
	$(PYTHON) -m pytest -n 2 --dist loadfile -m "not slow"

test-slow: setup
	$(PYTHON) -m pytest -m slow

# every table and figure of the papers, small: that it runs, not what it says
smoke: setup
	$(VENV)/bin/credent reproduce vl --scale smoke --out smoke
	$(VENV)/bin/credent reproduce pp --scale smoke --out smoke
	$(VENV)/bin/credent reproduce bnp --scale smoke --out smoke
	$(VENV)/bin/credent reproduce ir --scale smoke --out smoke
	$(VENV)/bin/credent reproduce tb --scale smoke --out smoke

lint: setup
	$(VENV)/bin/ruff check src tests bench setup.py
	$(VENV)/bin/ruff format --check src tests bench setup.py
	$(VENV)/bin/mypy

bench-setup: $(BENCH_STAMP)

$(BENCH_STAMP): constraints.txt bench/requirements.txt bench/peers.txt pyproject.toml setup.py $(wildcard src/credent/native/*.[ch])
	test -x $(BENCH_PYTHON) || python3 -m venv $(BENCH)
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -r bench/requirements.txt
	$(BENCH_PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps -r bench/peers.txt
	touch $(BENCH_STAMP)

# two or three hours on two cores by estimate; docs/benchmarks.md has shorter ways
bench: bench-setup
	$(BENCH_PYTHON) -m bench.zoo
	$(BENCH_PYTHON) -m bench.speed

# a night on two cores, and goes on where it was stopped; needs CREDENT_DATA
bench-quality: bench-setup
	$(BENCH_PYTHON) -m bench.quality

bench-check: setup
	$(PYTHON) -m bench.speed.check

docs: setup
	$(VENV)/bin/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) $(BENCH) build dist site demo smoke
