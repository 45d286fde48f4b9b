# Every target sets up .venv on first use.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# The package alone, as users have it; READY adds what working on it needs.
BARE := $(VENV)/.bare
READY := $(VENV)/.ready
DOCS_READY := $(VENV)/.docs-ready
PEERS_READY := $(VENV)/.peers-ready
# only_train_once can't be imported on current torch.
HESSO_VENV := .venv-oto
HESSO_READY := $(HESSO_VENV)/.ready
# ModelOpt pins what it works with: its transformers is older than ours.
MODELOPT_VENV := .venv-modelopt
MODELOPT_READY := $(MODELOPT_VENV)/.ready
# torchaudio refuses a torch that was built for another CUDA than its own.
OTHERS_VENV := .venv-others
OTHERS_READY := $(OTHERS_VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test bench-test lint check docs wheel coverage hesso modelopt others clean
.DELETE_ON_ERROR:

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The small and the dense model train at the same time, one core each, so that the report can compare them.
demo: export OMP_NUM_THREADS = 1
demo: $(BARE) ## train ResNet-20 on digits, dense and at a quarter of its FLOPs, and compare them in a report
	rm -rf runs/demo runs/demo-dense
	@$(BIN)/trainonce train digits.resnet20 --keep-flops 1 --quiet --out runs/demo-dense >/dev/null & dense=$$!; \
	$(BIN)/trainonce train digits.resnet20 --out runs/demo && echo "waiting for the dense model" && wait $$dense && \
	$(BIN)/trainonce report runs/demo --baseline runs/demo-dense

# One thread per test process: the workers already fill the cores.
test bench-test check: export OMP_NUM_THREADS ?= 1

test: $(READY) ## run the tests
	$(BIN)/python -m pytest -n $(WORKERS)

bench-test: $(READY) ## run the tests of the benchmarks
	$(BIN)/python -m pytest -n $(WORKERS) benchmarks/tests

lint: $(READY) ## the quick half of check: format, lint, types, workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --quiet --offline --config .github/zizmor.yml .github/workflows

check: lint docs test bench-test ## everything CI runs: lint, layering, line budgets, documents, tests

# mkdocs-material announces its successor on every build.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(DOCS_READY) ## build the documentation into site/, without network; fails on outdated pages and dead links
	$(BIN)/python -m docs.making.reference --check
	$(BIN)/python -m mkdocs build
	$(BIN)/python -m docs.making.site

wheel: $(READY) ## build the wheel and the source archive into dist/
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .

coverage: $(PEERS_READY) ## inspect and cut every model of the suites; writes benchmarks/results/coverage.md
	$(BIN)/python -m benchmarks coverage

hesso: $(HESSO_READY) ## a separate environment (torch 2.4.1) for the peer only_train_once

modelopt: $(MODELOPT_READY) ## a separate environment for the peer NVIDIA ModelOpt

others: $(OTHERS_READY) ## a separate environment (torch 2.11.0) for the coverage suite of other packages' models

clean: ## remove what was built; the environment stays
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BARE): pyproject.toml
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	@touch $@

$(READY): $(BARE)
	$(PIP) -e '.[zoo,export,dev]'
	@touch $@

$(DOCS_READY): $(BARE)
	$(PIP) -e '.[docs]'
	@touch $@

$(PEERS_READY): $(READY)
	$(PIP) -e '.[peers]'
	@touch $@

$(HESSO_READY):
	@$(HESSO_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(HESSO_VENV)
	$(HESSO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.4.1 only_train_once==3.0.1 'numpy<2' packaging safetensors rich
	@touch $@

# Its FLOPs are counted by torchprofile, and it imports requests; its wheel names neither.
$(MODELOPT_READY):
	@$(MODELOPT_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(MODELOPT_VENV)
	$(MODELOPT_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		nvidia-modelopt==0.47.0 torch==2.15.0 torchvision==0.29.2 timm==1.0.31 transformers==5.14.1 \
		torchprofile==0.0.4 requests safetensors rich jinja2 pyyaml scikit-learn
	@touch $@

# diffusers, monai and others only say which torch is too old; torchaudio 2.11.0 goes with torch 2.11.0.
$(OTHERS_READY):
	@$(OTHERS_VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(OTHERS_VENV)
	$(OTHERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
		torch==2.11.0 torchvision==0.26.0 torchaudio==2.11.0 timm==1.0.31 transformers==5.23.0 \
		ultralytics==8.4.190 segmentation-models-pytorch==0.6.0 diffusers==0.42.1 open-clip-torch==3.3.0 \
		x-transformers==2.31.10 vit-pytorch==1.26.11 monai==1.6.1 torch-geometric==2.8.1 spandrel==0.4.2 \
		speechbrain==1.1.2 neuralforecast==3.3.0 conformer==0.3.2 \
		safetensors rich jinja2 pyyaml scikit-learn
	@touch $@
