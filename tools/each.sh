#!/bin/sh
# Runs each of the commands that it is given, whatever became of those before; then names the ones that
# failed, and fails if there is one.
#
#     tools/each.sh 'COMMAND ...' ...
set -u
failed=""
for command in "$@"; do
    sh -c "$command" || failed="$failed
  $command"
done
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
