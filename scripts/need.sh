#!/usr/bin/env bash
# Makes sure that the programs that tests are run against are in PATH, installing them with apt-get where that is
# possible. No test is skipped when its program is missing, so they are needed first.
# Usage: need.sh PROGRAM...
set -eu -o pipefail

# One row per program: what the tests call it (any of these names; browsertest has the same for chromium), its package at
# Debian, what asks for its version, the least version, and what it is for.
lookup() {
  case $1 in
    cc)       local cc # the first word, since CC may name a wrapper: "ccache gcc"
              read -r cc _ <<<"$(go env CC)"
              names=("$cc") package="gcc libc6-dev" ask=--version least=1 use="the race detector" ;;
    redis)    names=(redis-server) package=redis-server ask=--version least=7 use="the stores' tests" ;;
    chromium) names=(chromium chromium-browser google-chrome google-chrome-stable)
              package=chromium ask=--version least=1 use="the test of the load test's page" ;;
    nginx)    names=(nginx) package=nginx-light ask=-v least=1 use="the tests of deploy/proxies" ;;
    caddy)    names=(caddy) package=caddy ask=version least=2 use="the tests of deploy/proxies" ;;
    haproxy)  names=(haproxy) package=haproxy ask=-v least=2 use="the tests of deploy/proxies" ;;
    systemd)  names=(systemd-analyze) package=systemd ask=--version least=250 use="the test of deploy/systemd" ;;
    node)     names=(node) package=nodejs ask=--version least=18 use="the test of examples/node" ;;
    python)   names=(python3) package=python3 ask=--version least=3 use="the test of examples/python" ;;
    *)        echo "need: $1: want cc, redis, chromium, nginx, caddy, haproxy, systemd, node or python" >&2; exit 2 ;;
  esac
}

# Names of packages elsewhere, where they are not the program's.
elsewhere() {
  other=$1 alpine=$1
  case $1 in
    cc)       other=gcc alpine="gcc musl-dev" ubuntu="apt-get install $package" brew=gcc ;;
    chromium) ubuntu="snap install chromium" brew="--cask chromium" ;;
    node)     other=nodejs alpine=nodejs ubuntu="apt-get install $package" brew=node ;;
    python)   other=python3 alpine=python3 ubuntu="apt-get install $package" brew=python3 ;;
    *)        ubuntu="apt-get install $package" brew=$1 ;;
  esac
}

give_up() { # PROGRAM REASON
  lookup "$1"; elsewhere "$1"
  cat >&2 <<TEXT
need: $2
For $use, make needs ${names[0]} $least or newer in PATH${names[1]+ (or ${names[*]:1})}. Install it, then run make again:
  Debian           sudo apt-get install $package
  Ubuntu           sudo $ubuntu
  Fedora, RHEL     sudo dnf install $other
  Alpine           sudo apk add $alpine
  Arch             sudo pacman -S $other
  macOS            brew install $brew
TEXT
  exit 1
}

# path_of prints the path of a program. Debian has servers in a directory that users do not have in PATH.
path_of() {
  lookup "$1"
  local name
  for name in "${names[@]}"; do
    PATH=$PATH:/usr/sbin:/usr/local/sbin command -v "$name" && return
  done
  return 1
}

# install_package installs a program's package. Distributions start a service after installing one, and at each boot; the
# tests want neither: RUNLEVEL=1 makes some of Debian's scripts refrain, and a service that has come with it is disabled.
install_package() {
  lookup "$1"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || give_up "$1" "there is no ${names[0]} in PATH, and apt-get needs root (sudo asks for a password)."
    as_root=(sudo -n)
  fi
  local install=("${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends $package) # one word for each package
  echo "need: there is no ${names[0]} in PATH, installing $package with apt-get"
  if ! "${install[@]}"; then
    # A fresh container has no package lists.
    echo "need: trying again after apt-get update"
    "${as_root[@]}" apt-get update -q || give_up "$1" "apt-get update did not work."
    "${install[@]}" || give_up "$1" "apt-get could not install $package."
  fi
  if command -v systemctl >/dev/null && systemctl is-enabled -q "${names[0]}" 2>/dev/null; then
    "${as_root[@]}" systemctl disable -q "${names[0]}" || give_up "$1" "its service could not be disabled."
    if [ -d /run/systemd/system ]; then
      "${as_root[@]}" systemctl stop -q "${names[0]}" || give_up "$1" "its service could not be stopped."
    fi
  fi
}

need() {
  lookup "$1"
  local path version
  if ! path=$(path_of "$1"); then
    command -v apt-get >/dev/null || give_up "$1" "there is no ${names[0]} in PATH, and no apt-get to install it with."
    install_package "$1"
    path=$(path_of "$1") || give_up "$1" "apt-get installed $package, but there is no ${names[0]} in PATH."
  fi
  # It is started once: a package without its libraries, or a stub that only names another package, is found out here.
  version=$("$path" "$ask" 2>&1) || give_up "$1" "$path does not start."
  version=$(grep -oE '[0-9]+(\.[0-9]+)+' <<<"$version" | head -n 1) || give_up "$1" "$path does not say its version."
  if [ "$1" = cc ]; then
    "$path" -E -x c - <<<'#include <stdlib.h>' >/dev/null 2>&1 || give_up "$1" "$path finds no headers of the C library."
  fi
  [ "${version%%.*}" -ge "$least" ] || give_up "$1" "$path is version $version."
  echo "need: $path $version"
}

for program in "$@"; do
  need "$program"
done
