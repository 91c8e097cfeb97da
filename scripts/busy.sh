#!/usr/bin/env bash
# Runs a command beside eight busy loops, which end with it, or after an hour.
# Usage: busy.sh COMMAND [ARGUMENT...]
set -eu -o pipefail
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true' EXIT
for _ in 1 2 3 4 5 6 7 8; do
  timeout 3600 sh -c 'while :; do :; done' &
  loops+=($!)
done
"$@"
