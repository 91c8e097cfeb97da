#!/usr/bin/env bash
# Runs go test -json with the race detector, and then the packages of $UNRACED without it. -race holds
# for a whole go test run, so this makes two; one script, so that gotestsum prints one total.
# Usage: UNRACED='./a ./b/...' go-test.sh FLAGS PACKAGE...; FLAGS is one word, "-short -count=1".
set -eu -o pipefail
flags=$1
shift
packages=$(go list "$@" | sort -u)
plain=
if [ -n "${UNRACED:-}" ]; then
  plain=$(comm -12 <(echo "$packages") <(go list $UNRACED | sort -u))
fi
raced=$(comm -23 <(echo "$packages") <(echo "$plain"))
status=0
if [ -n "$raced" ]; then
  go test -json -race $flags $raced || status=$?
fi
if [ -n "$plain" ]; then
  go test -json $flags $plain || status=$?
fi
exit "$status"
