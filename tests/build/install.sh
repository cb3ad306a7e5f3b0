#!/bin/sh
# Installs into a fresh folder and builds a program against it: by pkg-config and by CMake, shared and static.
# Usage: install.sh BUILD_FOLDER CMAKE COMPILER CONSUMER_FOLDER
set -eu
build=$1
cmake=$2
compiler=$3
consumer=$4
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR='' "$cmake" --install "$build" --prefix "$folder/usr" >"$folder/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$folder/usr" -name sluice.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
flags() {
    pkg-config --define-variable=prefix="$folder/usr" "$@" sluice
}

# shellcheck disable=SC2046
"$compiler" -std=c11 $(flags --cflags) "$consumer/main.c" $(flags --libs) -o "$folder/shared"
LD_LIBRARY_PATH=$libdir "$folder/shared"
# shellcheck disable=SC2046
"$compiler" -std=c11 $(flags --cflags) "$consumer/main.c" "$libdir/libsluice.a" \
    $(flags --static --libs | sed 's/-lsluice //') -o "$folder/static"
"$folder/static"
ldd "$folder/static" | grep libsluice && exit 1

"$cmake" -S "$consumer" -B "$folder/consumer" -DCMAKE_PREFIX_PATH="$folder/usr" -DCMAKE_C_COMPILER="$compiler" \
    >"$folder/configure.log"
"$cmake" --build "$folder/consumer" >"$folder/build.log"
"$folder/consumer/shared"
"$folder/consumer/static"
if [ -x "$folder/usr/bin/sluice" ]; then
    "$folder/usr/bin/sluice" --version
fi
