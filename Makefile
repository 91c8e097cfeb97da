# Everything a contributor or the CI runs. `make` alone lists the targets, from the comments behind `##`.
#
# Tools are pinned in tools/go.mod, a module of its own, so that go.mod lists only what offpath itself needs.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

TOOL := go tool -modfile=tools/go.mod
PROTOS := $(wildcard pkg/*/*.proto)

# How long each fuzz test runs, which benchmarks, and how often: make fuzz FUZZTIME=5m; make bench BENCH=Check COUNT=10
FUZZTIME ?= 10s
BENCH ?= .
COUNT ?= 1

# make torture MINUTES=60 SEED=7 TORTURE='--mode cluster --faults kill,lose'
MINUTES ?= 10
SEED ?= 1
TORTURE ?=

# What make test runs: one package with make test PKG=./pkg/check, some with PKG='./pkg/rules/... ./pkg/window'
PKG ?= ./...

# After how long a package's tests count as hung. Most take seconds; in make test-all some take a minute or two.
TESTTIME ?= 15m

# These run without the race detector in make test because it makes them up to ten times slower. Most are
# single-threaded. make test-all races them too, but for loadtest/sim/torture: six minutes for virtual time.
UNRACED ?= ./internal/endtoend ./loadtest/... ./pkg/rules/... ./pkg/window ./pkg/check/internal/forecast

# Prints one line for each package, what failed, and the totals.
TESTSUM := $(TOOL) gotestsum --format pkgname --format-hide-empty-pkg --hide-summary skipped
TESTS := $(TESTSUM) --
# The race detector sleeps for a second at the end of each test binary, unless told not to.
RACE := GORACE=atexit_sleep_ms=20

# Long tests with real servers that die, which the race detector looks at as well.
OUTAGES := ^(TestEveryHitIsCounted.*|TestReadyKnowsOfADeadNode|TestRedisDies|TestStoreWithACL)$$

# The programs that make test-all runs tests against.
NEEDED := cc redis chromium nginx caddy haproxy systemd node python

.PHONY: help
help: ## List the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## Compile everything; the commands go to bin/
	go build ./...
	go build -o bin/ ./cmd/...

.PHONY: test
test: ## Run every package's tests, most under the race detector, with real NATS and Redis: PKG=./pkg/check for one
	@scripts/need.sh cc redis
	$(RACE) UNRACED='$(UNRACED)' $(TESTSUM) --raw-command -- scripts/go-test.sh '-short -count=1 -vet=off -shuffle=on -timeout $(TESTTIME)' $(PKG)

.PHONY: screenshots
screenshots: ## Make the pictures of docs/console.md anew, of a fleet that has worked for MINUTES
	scripts/need.sh chromium redis
	cd loadtest/browsertest && OFFPATH_PICTURES=../../docs OFFPATH_PICTURES_AFTER=$(MINUTES)m go test -count=1 -timeout 2h -run '^TestPictures$$' .

.PHONY: test-all
test-all: ## Run everything else as well: short tests (but for virtual faults) and outages raced, long tests, browser, proxies, what is in deploy/, benchmarks once
	@echo "make test-all needs $(NEEDED) and takes a quarter to half an hour; what is missing is installed with apt-get"
	scripts/need.sh $(NEEDED)
	$(MAKE) --no-print-directory test PKG=./... UNRACED=./loadtest/sim/torture
	$(TESTS) -race -count=1 -vet=off -shuffle=on -timeout $(TESTTIME) -run '$(OUTAGES)' ./internal/endtoend ./loadtest/fleet ./deploy
	$(TESTS) -count=1 -vet=off -shuffle=on -timeout $(TESTTIME) ./...
	go test -run '^$$' -bench . -benchtime 1x -vet=off -timeout $(TESTTIME) ./...
	$(MAKE) --no-print-directory torture MINUTES=1 TORTURE=--untimed
	cd deploy/lint && go test -count=1 -vet=off -timeout $(TESTTIME) ./...
	$(RACE) EXCEPT=deploy scripts/nested-modules.sh go test -race -count=1 -vet=off -shuffle=on -bench . -benchtime 1x -timeout $(TESTTIME) ./...

.PHONY: test-busy
test-busy: ## Run make test beside eight busy loops: no outcome may depend on speed
	scripts/busy.sh $(MAKE) --no-print-directory test

.PHONY: lint
lint: ## Check format, vet, staticcheck, generated code, go.mod and the tools
	scripts/gofmt-check.sh
	go vet ./...
	go vet -tags mixed ./cmd
	go vet -tags torture ./cmd/internal/daemon
	go -C tools vet ./...
	go -C tools test -count=1 -vet=off ./...
	$(TOOL) staticcheck ./...
	go -C tools tool staticcheck ./...
	scripts/generated-check.sh $(PROTOS)
	go mod tidy -diff
	go -C tools mod tidy -diff
	scripts/nested-modules.sh go mod tidy -diff
	scripts/nested-modules.sh go vet ./...

.PHONY: vuln
vuln: ## Check the code and its modules against Go's vulnerability database: vuln.go.dev, or $GOVULNDB
	@scripts/vuln.sh

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10s) each
	@scripts/need.sh redis
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Run the benchmarks: BENCH=pattern COUNT=times
	@scripts/need.sh redis
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

.PHONY: mutants
mutants: ## Test 165 small changes to the core, one at a time (your files stay as they are), and print those no test notices: ONLY=text
	@scripts/need.sh redis
	go -C tools run ./mutants -root .. -only '$(ONLY)'

.PHONY: structure
structure: ## Print sizes, exported names and circular references of each package: UNDER=pkg/check for some
	go -C tools run ./structure -root .. -under '$(UNDER)'

.PHONY: generate
generate: ## Generate Go code from the .proto files
	go -C tools run ./protogen $(CURDIR) $(PROTOS)

.PHONY: release
release: ## Build static binaries, their SBOMs and checksums into dist/: VERSION=v1.2.3
	scripts/release.sh "$(VERSION)" dist

.PHONY: release-test
release-test: ## Build the commands twice as in a release, and compare; get and install this checkout as a module
	scripts/release-test.sh
	scripts/install-test.sh

.PHONY: torture
torture: ## Play faults on a fleet of real processes for MINUTES (10), drawn by SEED (1), with more flags in TORTURE
	@scripts/need.sh cc redis
	go run ./loadtest torture --minutes $(MINUTES) --seed $(SEED) $(TORTURE)

.PHONY: mixed-test
mixed-test: ## Run a fleet of this version and another, from git: PREVIOUS=commit or tag
	scripts/mixed.sh "$(PREVIOUS)"

.PHONY: clean
clean: ## Remove what builds and profiles leave behind
	rm -rf bin dist
	find . -path ./.git -prune -o -type f \( -name '*.test' -o -name '*.prof' \) -exec rm -f {} +
