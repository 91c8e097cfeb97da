#!/usr/bin/env bash
# Makes sure that a Chromium is in PATH, installing it with apt-get where that is possible.
# The load test's page is tested in a real browser; that test is not skipped when there is none, so it is needed first.
set -eu -o pipefail

# The same names, in the same order, as in loadtest/browsertest.
names=(chromium chromium-browser google-chrome google-chrome-stable)

give_up() {
  cat >&2 <<TEXT
need-chromium: $1
The test of the load test's page needs Chromium or Chrome in PATH, as one of: ${names[*]}.
Install it, then run make again:
  Debian           sudo apt-get install chromium
  Ubuntu           sudo snap install chromium
  Fedora, RHEL     sudo dnf install chromium
  Alpine           sudo apk add chromium
  Arch             sudo pacman -S chromium
  macOS            brew install --cask chromium
TEXT
  exit 1
}

find_chromium() {
  local name
  for name in "${names[@]}"; do
    command -v "$name" && return
  done
  return 1
}

install_chromium() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || give_up "there is no Chromium in PATH, and apt-get needs root (sudo asks for a password)."
    as_root=(sudo -n)
  fi
  local install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium)
  echo "need-chromium: there is no Chromium in PATH, installing it with apt-get"
  "${install[@]}" && return
  # A fresh container has no package lists.
  echo "need-chromium: trying again after apt-get update"
  "${as_root[@]}" apt-get update -q || give_up "apt-get update did not work."
  "${install[@]}" || give_up "apt-get could not install chromium."
}

if ! path=$(find_chromium); then
  command -v apt-get >/dev/null || give_up "there is no Chromium in PATH, and no apt-get to install it with."
  install_chromium
  path=$(find_chromium) || give_up "apt-get installed chromium, but it is not in PATH."
fi

# It is started once: a package without its libraries, or a stub that only names another package, is found out here.
version=$("$path" --version 2>/dev/null) || give_up "$path does not start."
echo "need-chromium: $path, ${version% }"
