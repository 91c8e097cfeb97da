#!/usr/bin/env bash
# Builds the commands for Linux so that the same sources and the same Go give the same bytes, wherever and whenever that is:
# without C, without paths and times of this machine, and with nothing but the version and the commit stamped in.
# Usage: build-static.sh VERSION COMMIT ARCH DIRECTORY     COMMIT may be empty
set -eu -o pipefail
version=$1 commit=$2 arch=$3 out=$(realpath -m "$4")
cd "$(dirname "$0")/.."
scripts/version-check.sh "$version"

stamp=github.com/offpath-io/offpath/internal/version
# The variables keep settings of this machine out.
env CGO_ENABLED=0 GOOS=linux GOARCH="$arch" GOAMD64=v1 GOARM64=v8.0 GOFLAGS=-mod=readonly GOEXPERIMENT= GOFIPS140=off GOWORK=off \
  go build -trimpath -buildvcs=false \
  -ldflags "-s -w -buildid= -X $stamp.released=$version -X $stamp.commit=$commit" \
  -o "$out/" ./cmd/checker ./cmd/aggregator ./cmd/offpath
