#!/usr/bin/env bash
# Makes sure that redis-server 7.0 or newer is in PATH, installing it with apt-get where that is possible.
# The tests start private servers of their own; none is skipped when redis-server is missing, so it is needed first.
set -eu -o pipefail

give_up() {
  cat >&2 <<TEXT
need-redis: $1
The tests need redis-server 7.0 or newer in PATH. Install it, then run make again:
  Debian, Ubuntu   sudo apt-get install redis-server
  Fedora, RHEL     sudo dnf install redis
  Alpine           sudo apk add redis
  Arch             sudo pacman -S redis
  macOS            brew install redis
TEXT
  exit 1
}

# Distributions start a service after installing one; RUNLEVEL=1 makes Debian's scripts refrain, as the tests want none.
install_redis() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || give_up "redis-server is not in PATH, and apt-get needs root (sudo asks for a password)."
    as_root=(sudo -n)
  fi
  local install=("${as_root[@]}" env RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends redis-server)
  echo "need-redis: redis-server is not in PATH, installing it with apt-get"
  "${install[@]}" && return
  # A fresh container has no package lists.
  echo "need-redis: trying again after apt-get update"
  "${as_root[@]}" apt-get update -q || give_up "apt-get update did not work."
  "${install[@]}" || give_up "apt-get could not install redis-server."
}

if ! command -v redis-server >/dev/null; then
  command -v apt-get >/dev/null || give_up "redis-server is not in PATH, and there is no apt-get to install it with."
  install_redis
  command -v redis-server >/dev/null || give_up "apt-get installed redis-server, but it is not in PATH."
fi

version=$(redis-server --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')
[ "${version%%.*}" -ge 7 ] 2>/dev/null || give_up "redis-server in PATH is version ${version:-unknown}."
echo "need-redis: $(command -v redis-server) $version"
