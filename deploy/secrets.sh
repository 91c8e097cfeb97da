#!/bin/sh
# Prints passwords and signing keys for compose.yaml: ./secrets.sh > .env
# Each begins with a letter: a nats.conf would read 12ab as a number. They have no character that a URL would need escaped.
set -eu
umask 077

# The pairs of keys that sign rules and blocks come from "offpath keygen": of the image, or of the command that OFFPATH names.
rules=$(${OFFPATH:-docker run --rm --network none offpath:dev offpath} keygen)
entries=$(${OFFPATH:-docker run --rm --network none offpath:dev offpath} keygen)
# shellcheck disable=SC2086 # each is two words
printf 'RULES_SIGNING_KEY=%s\nRULES_PUBLIC_KEYS=%s\nENTRIES_SIGNING_KEY=%s\nENTRIES_PUBLIC_KEYS=%s\n' $rules $entries

for name in NATS_CHECKER_1_PASSWORD NATS_CHECKER_2_PASSWORD NATS_AGGREGATOR_PASSWORD NATS_OPERATOR_PASSWORD REDIS_PASSWORD REDIS_ADMIN_PASSWORD CONSOLE_TOKEN RECEIPT_KEY GRAFANA_PASSWORD; do
  printf '%s=p%s\n' "$name" "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
done
