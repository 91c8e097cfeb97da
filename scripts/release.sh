#!/usr/bin/env bash
# Builds a release: for each architecture an archive of the static commands, and per command an SBOM (CycloneDX) of what
# was linked in; and SHA256SUMS of all. The same commit gives the same bytes.
# Usage: release.sh VERSION DIRECTORY
set -eu -o pipefail
cd "$(dirname "$0")/.."
version=${1-}
scripts/version-check.sh "$version"
out=$(realpath -m "${2:-dist}")
commit=$(git rev-parse HEAD)
if [ -n "$(git status --porcelain)" ]; then
  echo "release: there are changes that are not committed; a release is of a commit" >&2
  exit 1
fi
if [ -n "$(ls -A "$out" 2>/dev/null)" ] && [ ! -e "$out/SHA256SUMS" ]; then
  echo "release: $out has files that are not a release's; it would be emptied" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$out"

for arch in amd64 arm64; do
  name=offpath_${version}_linux_$arch
  echo "release: $name"
  scripts/build-static.sh "$version" "$commit" "$arch" "$out/$name"
  for command in checker aggregator offpath; do
    scripts/sbom.sh "$version" "$out/$name/$command" "$out/${name}_$command.cdx.json"
  done
  cp LICENSE README.md CHANGELOG.md "$out/$name/"
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -C "$out" -cf - "$name" | gzip -n -9 > "$out/$name.tar.gz"
  rm -r "${out:?}/$name"
done
(cd "$out" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
