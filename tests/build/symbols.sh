#!/bin/sh
# What libsluice.so shows and needs. Usage: symbols.sh LIBRARY HEADER_FOLDER
set -eu
library=$1
headers=$2
failed=0

complain() {
    echo "$1" >&2
    failed=1
}

exported=$(nm -D --defined-only "$library" | awk '{print $NF}' | sort)
foreign=$(echo "$exported" | grep -v '^sluice_' || true)
[ -z "$foreign" ] || complain "exported beside our interface: $foreign"

# Every function that a header declares for the library is there. cuda.h belongs to the CUDA module.
declared=$(find "$headers" -name '*.h' ! -name cuda.h -exec cat {} + | tr '\n' ' ' | grep -o 'SLUICE_API [^;(]*(' |
    grep -o 'sluice_[a-z0-9_]*($' | tr -d '(' | sort -u)
[ -n "$declared" ] || complain "no declarations found in $headers"
for name in $declared; do
    echo "$exported" | grep -qx "$name" || complain "declared but not exported: $name"
done

dynamic=$(readelf -d "$library")
if echo "$dynamic" | grep -q STATIC_TLS; then
    complain "static thread-local storage: the library could not be loaded late"
fi
if echo "$dynamic" | grep NEEDED | grep -Eq 'jemalloc|cuda|nccl'; then
    complain "must not be linked: $(echo "$dynamic" | grep NEEDED | grep -E 'jemalloc|cuda|nccl')"
fi
if echo "$dynamic" | grep -Eq 'RPATH|RUNPATH'; then
    complain "has a search path of its build"
fi
exit $failed
