#!/bin/sh
# Runs a command where the loopback is the only network: tools/only_loopback.sh COMMAND [ARGUMENT...]
set -eu
if [ "$(id -u)" = 0 ]; then
    user=
else
    user="--user --map-root-user"
fi
# shellcheck disable=SC2086 # two words or none
exec unshare $user --net sh -c 'ip link set lo up && exec "$@"' sh "$@"
