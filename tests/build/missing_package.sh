#!/bin/sh
# Without its dependencies the configuration fails and names every package. Usage: missing_package.sh SOURCE CMAKE COMPILER
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/empty"
if PKG_CONFIG_LIBDIR="$folder/empty" PKG_CONFIG_PATH= "$2" -S "$1" -B "$folder/build" -DCMAKE_C_COMPILER="$3" \
    >"$folder/log" 2>&1; then
    echo "configured without any package" >&2
    exit 1
fi
for package in libevent-dev libjansson-dev libxxhash-dev libsodium-dev libjemalloc-dev libcriterion-dev; do
    grep -q "$package" "$folder/log" || {
        echo "not named: $package" >&2
        cat "$folder/log" >&2
        exit 1
    }
    grep -qx "$package" "$1/tools/packages" || {
        echo "not in tools/packages: $package" >&2
        exit 1
    }
done
