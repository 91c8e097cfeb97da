#!/usr/bin/env bash
# Fails unless this checkout can be had as a module: `go get` for a program that uses it, and `go install` for each command. It is
# served, as git has it, with changes of tracked files, from a module proxy of files; what it needs comes from this machine's module
# cache, or else from the proxy of `go env GOPROXY`.
set -eu -o pipefail
cd "$(dirname "$0")/.."
module=github.com/offpath-io/offpath version=v0.0.1-test
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { echo "install-test: $*"; }

step "a module proxy with $module $version"
# A commit of the changes, if there are any; nothing refers to it.
revision=$(git -c user.name=test -c user.email=test@example.com stash create)
mkdir "$work/tree"
git archive "${revision:-HEAD}" | tar -xf - -C "$work/tree"
go -C tools run ./modproxy "$work/tree" "$version" "$work/proxy"

# No checksum database knows this version. The others are those that go.sum has for builds of this checkout.
cache=$(go env GOMODCACHE)/cache/download
export GOPROXY="file://$work/proxy,file://$cache,$(go env GOPROXY)" GOSUMDB=off GONOPROXY=none GOTOOLCHAIN=local GOWORK=off
export GOMODCACHE=$work/modules GOBIN=$work/bin GOFLAGS="-modcacherw -trimpath" CGO_ENABLED=0

mkdir "$work/service"
cp examples/fleet/main.go "$work/service"
cd "$work/service"
step "go get for the program of README.md"
go mod init example.com/service 2>/dev/null
go get "$module"
go mod tidy
go build -o "$work/bin/service" .
grep -q "^require $module $version\$\|^	$module $version\$" go.mod

step "go build for every other package"
go build -mod=mod "$module/pkg/..."

cd "$work" # in no module
for main in "$GOMODCACHE/$module@$version"/cmd/*/main.go; do
  command=$(basename "$(dirname "$main")")
  step "go install $module/cmd/$command@$version"
  go install "$module/cmd/$command@$version"
  said=$("$work/bin/$command" --version)
  echo "$said"
  [[ $said == "offpath $command $version "* || $said == "$command $version "* ]] || { echo "FAILED: $command does not know its version" >&2; exit 1; }
done
[ -x "$work/bin/checker" ] && [ -x "$work/bin/aggregator" ]
step "passed"
