#!/bin/sh
# Run a command again where it fails: downloads do now and then. Three times at most, with a pause.
for pause in 5 20 0; do
    "$@" && exit 0
    code=$?
    [ "$pause" = 0 ] || { echo "failed: $1; trying again in $pause s" >&2; sleep "$pause"; }
done
exit "$code"
