#!/usr/bin/env bash
# Fails unless its argument is a version, such as v1.2.3 or v1.2.3-rc.1.
# Usage: version-check.sh VERSION
set -eu -o pipefail
if [[ ! ${1-} =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "VERSION is ${1:-not given}: want one such as v1.2.3" >&2
  exit 2
fi
