#!/bin/sh
# Installs into a fresh folder and builds programs against it: by pkg-config and by CMake, shared and static, as C and as
# C++; the README's program too, which then runs. Usage: install.sh BUILD_FOLDER CMAKE CC CXX CONSUMER_FOLDER README
set -eu
build=$1
cmake=$2
compiler=$3
cxx=$4
consumer=$5
readme=$6
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

DESTDIR='' "$cmake" --install "$build" --prefix "$folder/usr" >"$folder/install.log"
PKG_CONFIG_PATH=$(dirname "$(find "$folder/usr" -name sluice.pc)")
export PKG_CONFIG_PATH
libdir=$(dirname "$PKG_CONFIG_PATH")
flags() {
    pkg-config "$@" sluice
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
"$folder/consumer/from_cxx"

# The README's program, in a world of one.
awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$readme" >"$folder/refit.c"
strict="-Wall -Wextra -Wpedantic -Werror"
# shellcheck disable=SC2046,SC2086
"$compiler" -std=c11 $strict $(flags --cflags) "$folder/refit.c" $(flags --libs) -o "$folder/refit"
# shellcheck disable=SC2046,SC2086
"$cxx" -std=c++17 $strict -x c++ $(flags --cflags) "$folder/refit.c" $(flags --libs) -o "$folder/refit_cxx"
if [ -x "$folder/usr/bin/sluice" ]; then
    "$folder/usr/bin/sluice" --version
    cd "$folder"
    usr/bin/sluice plan --model qwen3-30b-a3b --from world=1 --to world=1,offset=0 --scale 1/8192 -o refit.plan
    LD_LIBRARY_PATH=$libdir ./refit | grep 'rank 0 has version 3'
    LD_LIBRARY_PATH=$libdir ./refit_cxx | grep 'rank 0 has version 3'
fi
