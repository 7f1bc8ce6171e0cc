# Two commands on a fresh machine: `make demo` and `make test`.
VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slow smoke lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,lint,docs]'
	touch $(STAMP)

demo: setup
	$(VENV)/bin/credent demo --out demo

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

lint: setup
	$(VENV)/bin/ruff check src tests bench
	$(VENV)/bin/ruff format --check src tests bench
	$(VENV)/bin/mypy

bench: setup
	$(PYTHON) bench/vi_step.py
	$(PYTHON) bench/vl_step.py

docs: setup
	$(VENV)/bin/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) build dist site demo smoke
