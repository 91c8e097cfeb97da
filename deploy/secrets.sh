#!/bin/sh
# Prints passwords for compose.yaml: ./secrets.sh > .env
# Each begins with a letter: a nats.conf would read 12ab as a number. They have no character that a URL would need escaped.
set -eu
umask 077

for name in NATS_CHECKER_1_PASSWORD NATS_CHECKER_2_PASSWORD NATS_AGGREGATOR_PASSWORD NATS_OPERATOR_PASSWORD REDIS_PASSWORD REDIS_ADMIN_PASSWORD CONSOLE_TOKEN RECEIPT_KEY GRAFANA_PASSWORD; do
  printf '%s=p%s\n' "$name" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
done
