#!/usr/bin/env bash
# Prints how much CPU time processes take, in ms per second, and their memory, over so many seconds. Linux only: it reads /proc,
# which a busy machine does not falsify as it does wall time.
# Usage: cpu.sh SECONDS PID...
set -eu -o pipefail
[ $# -ge 2 ] || { echo "usage: cpu.sh SECONDS PID..." >&2; exit 2; }
seconds=$1
shift
hz=$(getconf CLK_TCK)

ticks() { # PID: user and system time; the name before them may hold anything but a newline
  local stat
  stat=$(<"/proc/$1/stat")
  set -- ${stat##*) }
  echo $((${12} + ${13}))
}

declare -A before
for pid in "$@"; do before[$pid]=$(ticks "$pid"); done
begin=$(date +%s%N)
sleep "$seconds"
printf '%-16s %8s %10s %10s\n' process pid 'CPU ms/s' 'memory MiB'
for pid in "$@"; do
  spent=$(($(ticks "$pid") - ${before[$pid]}))
  passed=$((($(date +%s%N) - begin) / 1000000))
  memory=$(awk '/^VmRSS/ { printf "%.0f", $2 / 1024 }' "/proc/$pid/status")
  printf '%-16s %8d %10.1f %10s\n' "$(<"/proc/$pid/comm")" "$pid" "$(awk "BEGIN { print $spent * 1e6 / $hz / $passed }")" "$memory"
done
