#!/usr/bin/env bash
# Fails if gofmt would change a file, and names the files.
set -eu -o pipefail
cd "$(dirname "$0")/.."

unformatted=$(gofmt -l .)
if [ -n "$unformatted" ]; then
  echo "gofmt -w would change:" >&2
  echo "$unformatted" >&2
  exit 1
fi
