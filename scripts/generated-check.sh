#!/usr/bin/env bash
# Fails if the generated code differs from what its sources give now. Generates into a temporary directory, so it also
# notices files that git does not know yet, and changes nothing.
# Usage: generated-check.sh PROTO...
set -eu -o pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || exit 0

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
go -C tools run ./protogen -out "$fresh" "$PWD" "$@"

stale=0
while read -r file; do
  diff -u "$file" "$fresh/$file" || stale=1
done < <(cd "$fresh" && find . -type f | sort)
# A .pb.go whose .proto is gone would never be compared.
while read -r file; do
  [ -e "$fresh/$file" ] || { echo "$file has no .proto any more" >&2; stale=1; }
done < <(find ./pkg -name '*.pb.go' | sort)

if [ $stale -ne 0 ]; then
  echo "generated code is not up to date: run make generate" >&2
  exit 1
fi
