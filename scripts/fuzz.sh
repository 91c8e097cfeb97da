#!/usr/bin/env bash
# Runs every fuzz test of the module for a while: go test takes only one at a time.
# Usage: fuzz.sh DURATION
set -eu -o pipefail
cd "$(dirname "$0")/.."

grep -rEo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort | while IFS=: read -r file func; do
  name=${func#func }
  echo "fuzz $name in $(dirname "$file") for $1"
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$1" "$(dirname "$file")" </dev/null
done
