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

# The limit of one package's tests. The whole of `make test` has taken 14 to 31 minutes on 2 cores, by the machine; internal/endtoend
# alone, under the race detector, 4 to 11.
TESTTIME ?= 30m

# The programs that tests are run against.
NEEDED := redis chromium nginx caddy haproxy promtool

# Packages with tests that are too long, or too much a matter of speed, for the race detector and for company: -short leaves
# those out.
LONG := ./internal/endtoend ./loadtest/sim ./loadtest/fleet ./pkg/aggregate ./pkg/envoyquota
# Tests of these that take minutes and are no shorter with -short: they have run by then.
NOTAGAIN := ^(TestSingleRedis|TestRedisCluster|TestStrictLive)$$

# The module that checks what is in deploy/ by its own tools, which take minutes to compile.
DEPLOY := deploy/lint

.PHONY: help
help: ## List the targets (default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## Compile everything; the commands go to bin/
	go build ./...
	go build -o bin/ ./cmd/...

.PHONY: test
test: ## Run all tests, with the race detector and real servers, and every benchmark once
	scripts/need.sh $(NEEDED)
	go test -race -short -shuffle=on -timeout $(TESTTIME) ./...
	go test -run 'Alloc|Flood|MemoryPerKey' ./pkg/... # the race detector allocates, and is slow
	go test -p 1 -shuffle=on -timeout $(TESTTIME) -skip '$(NOTAGAIN)' $(LONG)
	go test -run '^$$' -bench . -benchtime 1x -timeout $(TESTTIME) ./...
	EXCEPT=$(DEPLOY) scripts/nested-modules.sh go test -race -shuffle=on -timeout $(TESTTIME) ./...
	EXCEPT=$(DEPLOY) scripts/nested-modules.sh go test -run '^$$' -bench . -benchtime 1x -timeout $(TESTTIME) ./...

.PHONY: test-short
test-short: ## Run the tests without the race detector and without repeating unchanged ones
	scripts/need.sh $(NEEDED)
	go test -timeout $(TESTTIME) ./...

.PHONY: deploy-test
deploy-test: ## Check all that is in deploy/: by Helm, Compose, BuildKit, promtool, nats-server, Redis, systemd
	@# -count=1: what a test has read of another module, or another program for it, is not in Go's cache of results.
	scripts/need.sh redis promtool systemd
	go test -count=1 -timeout $(TESTTIME) ./deploy/...
	go test -count=1 -timeout $(TESTTIME) -run '^(TestDeployed|TestDrills)' ./cmd
	cd $(DEPLOY) && go mod tidy -diff && go test -count=1 -timeout $(TESTTIME) ./...

.PHONY: lint
lint: ## Check format, vet, staticcheck, generated code and go.mod
	scripts/gofmt-check.sh
	go vet ./...
	go vet -tags mixed ./cmd
	go -C tools vet ./...
	$(TOOL) staticcheck ./...
	go -C tools tool staticcheck ./...
	scripts/generated-check.sh $(PROTOS)
	go mod tidy -diff
	go -C tools mod tidy -diff
	scripts/nested-modules.sh go vet ./...

.PHONY: fuzz
fuzz: ## Run every fuzz test for FUZZTIME (10s) each
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## Run the benchmarks: BENCH=pattern COUNT=times
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

.PHONY: mutants
mutants: ## Change one place of the core at a time, and print which changes its tests do not notice: ONLY=text
	go -C tools run ./mutants -root .. -only '$(ONLY)'

.PHONY: generate
generate: ## Generate Go code from the .proto files
	go -C tools run ./protogen $(CURDIR) $(PROTOS)

.PHONY: release
release: ## Build static binaries, their SBOMs and checksums into dist/: VERSION=v1.2.3
	scripts/release.sh "$(VERSION)" dist

.PHONY: release-test
release-test: ## Build the commands twice as in a release, and compare
	scripts/release-test.sh

.PHONY: mixed-test
mixed-test: ## Run a fleet of this version and another, from git: PREVIOUS=commit or tag
	scripts/mixed.sh "$(PREVIOUS)"

.PHONY: clean
clean: ## Remove what builds and profiles leave behind
	rm -rf bin dist
	find . -name '*.test' -o -name '*.prof' | xargs -r rm -f
