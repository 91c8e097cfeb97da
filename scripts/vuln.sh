#!/usr/bin/env bash
# Holds the code and its modules against Go's database of vulnerabilities. Fails if the code calls something vulnerable, and also if the
# database cannot be reached: then nothing is known, and it says so.
set -eu -o pipefail
cd "$(dirname "$0")/.."

db=${GOVULNDB:-https://vuln.go.dev}
status=0
out=$(go tool -modfile=tools/go.mod govulncheck -db "$db" ./... 2>&1) || status=$?
echo "$out"
if [[ $out == *"fetching vulnerabilities"* ]]; then
  echo "nothing was checked: the database at $db cannot be reached (set GOVULNDB to the URL of a copy)" >&2
fi
exit "$status"
