#!/usr/bin/env bash
# Runs a command beside eight busy loops, which end with it. Fails if they did not last as long.
# Usage: busy.sh COMMAND [ARGUMENT...]
set -eu -o pipefail
parent=$$
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
for _ in 1 2 3 4 5 6 7 8; do
  (while kill -0 "$parent" 2>/dev/null; do for ((i = 0; i < 100000; i++)); do :; done; done) &
  pids+=($!)
done
loops=("${pids[@]}")
"$@" &
pids+=($!)
status=0
wait "${pids[-1]}" || status=$?
if ! kill -0 "${loops[@]}"; then
  echo "busy: the loops have ended before the command" >&2
  exit 1
fi
exit "$status"
