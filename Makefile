# make help lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
export PATH := $(PATH):/usr/local/go/bin:/usr/local/sbin:/usr/sbin:/sbin

GO ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo development)
LDFLAGS := -s -w -X railbed/cli.version=$(VERSION)

# The race detector needs cgo and so a C compiler.
RACE := $(shell command -v gcc >/dev/null 2>&1 && echo -race)
# test-root vets once for all packages.
TESTFLAGS ?= -count=1 -shuffle=on -timeout=25m -vet=off
# Programs with the detector sleep for a second before they exit. hosttest.Main finds goroutines that stay.
export GORACE ?= atexit_sleep_ms=0
# make check takes what passed before from Go's cache, unless this says otherwise.
CHECKFLAGS ?=
# run-pass is a shell command. It runs go test for each line that lists the tests of a pass (root, user or
# long), with further flags. Marks in the tests select their passes: see testkit/hosttest/marks.go.
run-pass = status=0; runs=$$($(GO) run ./testkit/hosttest/passes/list $(1)); \
	while read -r args; do $(GO) test $(TESTFLAGS) $(2) $$args </dev/null || status=1; done <<<"$$runs"; \
	exit $$status

# What reads files and recordings needs no Linux.
PORTABLE := ./internal/units ./plan/... ./capture/pcapng ./capture/display ./capture/follow ./capture/trace \
	./capture/bundle ./capture/keep ./capture/layers ./capture/report ./capture/verify/... ./transports \
	./workloads/collective ./reporting/...

.DEFAULT_GOAL := build
.PHONY: build quickstart check check-userns flakes test test-root test-user test-long setup-test interop \
	bench bench-once checks lint prose docs generate package package-check package-same sbom vuln ci \
	clean help

# Both have these flags and no cgo, so that they share compiled packages.
export GOFLAGS += -trimpath
build check: export CGO_ENABLED := 0

build: ## bin/railbed, one static binary
	$(GO) build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/railbed .

quickstart: ## build and run scenarios/quickstart.yaml into out/quickstart
	@scripts/quickstart

# Root becomes nobody.
check-userns: ## in about two minutes, tests of namespaces, links and testbeds as an ordinary user
	@export RAILBED_SAMPLE=12; \
	$(call run-pass,userns,$(if $(filter 0,$(shell id -u)),-exec "$(CURDIR)/scripts/as-nobody"))

check: ## build, vet, prose, every test that needs no host; CHECKFLAGS=-count=1 repeats what passed before
	@began=$$(date +%s); took() { echo "make check: $$1 after $$(($$(date +%s) - began)) s"; }; \
	trap 'took failed >&2' ERR; \
	$(GO) build ./...; \
	$(GO) vet ./...; \
	$(GO) test -short -vet=off -timeout=5m $(CHECKFLAGS) ./... | \
		{ grep -vE '^ok |\[no test files\]$$' || true; }; \
	if [ -x bin/vale ] || command -v gcc >/dev/null 2>&1; then $(MAKE) --no-print-directory prose; \
	else echo "make check: pages and comments are not read: no C compiler to build Vale with"; fi; \
	trap - ERR; took passed

flakes: ## RUNS=100 times WHAT=check, or test, beside two busy loops; output of failed runs in out/flakes
	@scripts/flakes $(or $(RUNS),100) $(or $(WHAT),check)

setup-test: ## as root, install what the tests use; else print the line
	@scripts/setup-test

test: setup-test ## every test that can run here
	@status=0; \
	$(MAKE) --no-print-directory test-root || status=1; \
	if [ "$$(id -u)" -eq 0 ]; then $(MAKE) --no-print-directory test-user || status=1; fi; \
	exit $$status

test-root: # as whoever runs make
	$(GO) build $(RACE) ./...
	$(GO) vet ./...
	@$(call run-pass,root $(RACE))

test-user: # root tries what nobody has
	@export RAILBED_REQUIRE=$${RAILBED_REQUIRE:+userns,testbed} RAILBED_SAMPLE=12; \
	$(call run-pass,user,-exec "$(CURDIR)/scripts/as-nobody")

# A package may take longer than in make test, of which CI tries a part of the long tests.
test-long: setup-test ## whole, the tests that RAILBED_SAMPLE, RAILBED_LONG and RAILBED_MOMENTS shorten in CI
	@unset RAILBED_SAMPLE RAILBED_LONG RAILBED_MOMENTS; \
	$(call run-pass,long $(RACE),-timeout=2h)

interop: setup-test ## RoCEv2 with the kernel: all cells, and the table of transports/roce/INTEROP.md
	$(GO) test -count=1 -timeout=30m -v -run TestMatrix ./testkit/interop -all -update

bench: setup-test build ## benchmarks beside the same work of other programs, which root installs first
	$(GO) test -run '^$$' -bench . -benchmem -p=1 -timeout=2h ./...

bench-once: setup-test # so that benchmarks cannot rot
	$(GO) test -run '^$$' -bench . -benchtime=1x -p=1 -timeout=30m ./...

# Tools have a module of their own, so that go.mod requires nothing for them. Vale's parsers are C.
bin/vale: tools/go.mod tools/go.sum
	CGO_ENABLED=1 $(GO) -C tools build -buildvcs=false -o ../$@ github.com/vale-cli/vale/v3/cmd/vale

bin/staticcheck: TOOL = honnef.co/go/tools/cmd/staticcheck
bin/nfpm: TOOL = github.com/goreleaser/nfpm/v2/cmd/nfpm
bin/cyclonedx-gomod: TOOL = github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
bin/govulncheck: TOOL = golang.org/x/vuln/cmd/govulncheck
bin/staticcheck bin/nfpm bin/cyclonedx-gomod bin/govulncheck: tools/go.mod tools/go.sum
	CGO_ENABLED=0 $(GO) -C tools build -buildvcs=false -o ../$@ $(TOOL)

# Pages of docs/reference are made from comments, which are read where they stand.
prose: bin/vale ## Vale on all pages and on the comments in Go, by styles/Railbed
	@bin/vale --output=line $$(git ls-files '*.md' '*.go' ':!:*/testdata/*' ':!:docs/reference/*')

# The quickest comes first. The tests compare the files of make generate.
checks: bin/staticcheck ## gofmt, tidy go.mod, prose, vet, staticcheck: what CI runs before the tests
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt -w $$unformatted" >&2; exit 1; fi
	$(GO) mod tidy -diff
	$(MAKE) --no-print-directory prose
	$(GO) vet ./...
	bin/staticcheck ./...

lint: checks ## make checks, tools' go.mod, builds for other systems, golangci-lint where it is installed
	$(GO) -C tools mod tidy -diff
	GOARCH=arm64 CGO_ENABLED=0 $(GO) build ./...
	GOOS=darwin CGO_ENABLED=0 $(GO) build $(PORTABLE)
	@if command -v golangci-lint >/dev/null 2>&1; then golangci-lint run; \
	else echo "golangci-lint is not installed"; fi

docs: ## the manual as a site, in out/docs
	@scripts/need mkdocs=mkdocs /usr/share/mkdocs/themes/material/mkdocs_theme.yml=mkdocs-material
	@mkdocs build --quiet && echo out/docs/index.html

# In this order: the keys of figures, the schema, the findings of checks, and the pages that show them all.
generate: ## write what is made from the code
	$(GO) generate ./capture/report ./plan/spec ./plan/spec/keys ./capture/verify ./scenarios/runner ./cli

package: ## deb, rpm, apk, tar.gz and their sums in out/packages; ARCHS="amd64 arm64"
	@scripts/package

package-check: ## as root, lintian; the deb of make package installed, used and purged in a clean Debian root
	@scripts/package-try

package-same: ## build the packages in another place and compare them with those of make package
	@scripts/package-same

# Of the program and not of go.mod, which has more. It warns that Railbed itself is in no module proxy.
sbom: build bin/cyclonedx-gomod ## out/packages/railbed.cdx.json, the modules in the program (CycloneDX)
	@mkdir -p out/packages
	@bin/cyclonedx-gomod bin -json -std -licenses -noserial -notimestamp -version $(VERSION) \
		-output out/packages/railbed.cdx.json bin/railbed

vuln: bin/govulncheck ## known vulnerabilities that the code reaches, from vuln.go.dev or VULNDB=URL
	@bin/govulncheck $(if $(VULNDB),-db $(VULNDB)) ./... || { status=$$?; \
	[ $$status -eq 3 ] || echo "make vuln: nothing was checked: see above" >&2; exit $$status; }

ci: lint ## what CI runs (make checks, make test), and the slower checks
	$(MAKE) --no-print-directory build
	$(MAKE) --no-print-directory bench-once
	$(MAKE) --no-print-directory test

clean: ## remove what make and runs have made
	rm -rf bin out

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14
