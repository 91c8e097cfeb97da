#!/usr/bin/env bash
# Upgrades a running fleet from another version, which git has, to this one, and back, and looks whether every hit was counted.
# Usage: mixed.sh COMMIT-OR-TAG
set -eu -o pipefail
cd "$(dirname "$0")/.."
if ! git rev-parse --quiet --verify "${1:-none}^{commit}" >/dev/null; then
  echo "PREVIOUS is ${1:-not given}: want a commit or tag that this clone has (git fetch --unshallow --tags gets all)" >&2
  exit 2
fi
work=$(mktemp -d)
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"' EXIT
git worktree add -q --detach "$work/tree" "$1"
(cd "$work/tree" && go build -o "$work/bin/" ./cmd/checker ./cmd/aggregator)
OFFPATH_TEST_PREVIOUS=$work/bin go test -tags mixed -count 1 -timeout 5m -v -run '^TestMixedFleet$' ./cmd
