#!/usr/bin/env bash
# Runs a command in every module beneath this one, except tools/ (which make lint checks by itself) and $EXCEPT, a directory.
# Nested modules keep heavy or rival dependencies out of go.mod; `./...` at the top does not reach them.
set -eu -o pipefail
cd "$(dirname "$0")/.."

find . -mindepth 2 -name go.mod -not -path './tools/*' -not -path "./${EXCEPT:-tools}/*" -not -path '*/testdata/*' | sort | while read -r file; do
  dir=$(dirname "$file")
  echo "in $dir: $*"
  (cd "$dir" && "$@") </dev/null
done
