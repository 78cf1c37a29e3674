#!/bin/sh
# A PostgreSQL server for the tests of the store: taken as it is where there is one, from the system's packages where apt can.
set -u
here=$(dirname "$0")
if command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    echo "installing PostgreSQL for the tests of the store"
    "$here/retry.sh" apt-get update -qq
    "$here/retry.sh" apt-get install -y -qq --no-install-recommends postgresql >/dev/null && exit 0
fi
echo "no PostgreSQL server here: install it; tests that need it will be skipped" >&2
