#!/usr/bin/env bash
# Writes what is linked into a command, modules and standard library with their versions and hashes, as CycloneDX JSON.
# Usage: sbom.sh VERSION BINARY FILE
set -eu -o pipefail
version=$1 binary=$(realpath "$2") file=$(realpath -m "$3")
cd "$(dirname "$0")/.."
go tool -modfile=tools/release/go.mod cyclonedx-gomod bin -json -std -noserial -notimestamp \
  -version "$version" -output "$file" "$binary"
