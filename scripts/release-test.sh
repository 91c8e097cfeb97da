#!/usr/bin/env bash
# Fails unless two builds of the same sources, in two places and with other settings about them, are the same to the byte, static,
# know their version, and have an SBOM of what is linked in. Builds for this machine's architecture only.
set -eu -o pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=$(go env GOARCH) failed=0
expect() { # WHAT COMMAND...
  if "${@:2}"; then echo "ok: $1"; else echo "FAILED: $1" >&2; failed=1; fi
}

scripts/build-static.sh v0.0.1-test abc123 "$arch" "$work/one"
mkdir -p "$work/elsewhere/deep"
tar --exclude=./.git --exclude=./dist --exclude=./bin -cf - . | tar -xf - -C "$work/elsewhere/deep"
(umask 077; TZ=Asia/Tokyo LANG=C GOFLAGS=-buildvcs=true CGO_ENABLED=1 "$work/elsewhere/deep/scripts/build-static.sh" v0.0.1-test abc123 "$arch" "$work/two")
sums() { (cd "$1" && sha256sum -- *); }
sums "$work/one"
expect "two builds are the same" test "$(sums "$work/one")" = "$(sums "$work/two")"
scripts/build-static.sh v0.0.2-test abc123 "$arch" "$work/three"
expect "another version is another build" test "$(sums "$work/one")" != "$(sums "$work/three")"

for command in checker aggregator offpath; do
  expect "$command knows its version" grep -q "^offpath \($command \)\?v0.0.1-test (commit abc123, " <("$work/one/$command" --version)
  expect "$command needs no library of the system" grep -q CGO_ENABLED=0 <(go version -m "$work/one/$command")
  expect "$command has no path of this machine" bash -c '! grep -qaF -- "$1" "$2"' - "$PWD/" "$work/one/$command"
  scripts/sbom.sh v0.0.1-test "$work/one/$command" "$work/$command.json"
  scripts/sbom.sh v0.0.1-test "$work/two/$command" "$work/again.json"
  expect "$command has an SBOM with its modules" grep -q '"pkg:golang/github.com/nats-io/nats.go@v' "$work/$command.json"
  expect "two SBOMs of $command are the same" cmp "$work/$command.json" "$work/again.json"
done
exit $failed
