# gpu-common.sh: what tools/gpu-test and tools/gpu-several share. Sourced in the folder of a bundle, never run. POSIX sh.
# Set ahead: report, the folder of outputs; plans, one for plans; limit_s, seconds after which no step begins any more.
failed=0
began=$(date +%s)

have() {
    command -v "$1" >/dev/null 2>&1
}

# note NAME MS VERDICT: one line of the table of steps.
note() {
    printf '%-30s %6d ms  %s\n' "$1" "$2" "$3" | tee -a "$report/steps"
}

# attempt NAME SECONDS COMMAND...: output in $report/NAME.txt, sets status and took; 1 when there is no time left.
attempt() {
    name=$1 most=$2
    shift 2
    status=0 took=0
    if [ $(($(date +%s) - began)) -ge "$limit_s" ]; then
        note "$name" 0 "left out: $limit_s s are over"
        return 1
    fi
    begin=$(date +%s%N)
    timeout -k 5 "$most" "$@" >"$report/$name.txt" 2>&1
    status=$?
    took=$((($(date +%s%N) - begin) / 1000000))
}

# step NAME SECONDS EXPECTED-STATUS COMMAND...
step() {
    expected=$3 name=$1 most=$2
    shift 3
    attempt "$name" "$most" "$@" || return 0
    if [ "$status" -eq "$expected" ]; then
        note "$name" "$took" passed
        return 0
    fi
    note "$name" "$took" "FAILED ($status, expected $expected)"
    failed=1
    tail -5 "$report/$name.txt"
}

# watch NAME SECONDS COMMAND...: any status will do, the last line of the output is shown.
watch() {
    attempt "$@" || return 0
    note "$name" "$took" "status $status: $(tail -1 "$report/$name.txt" | cut -c1-160)"
}

# make_plan FILE OPTIONS...: a plan in $plans.
make_plan() {
    name=$1
    shift
    mkdir -p "$plans"
    bin/sluice plan "$@" -o "$plans/$name" >>"$report/plans.txt" 2>&1 && return 0
    note "plan $name" 0 "FAILED (see plans.txt)"
    failed=1
}

# Several processes on one GPU run side by side with MPS and take turns without it.
mps=''
start_mps() {
    have nvidia-cuda-mps-control || return 0
    mps=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY="$mps" CUDA_MPS_LOG_DIRECTORY="$mps"
    nvidia-cuda-mps-control -d || mps=''
}

stop_mps() {
    [ -z "$mps" ] || echo quit | nvidia-cuda-mps-control
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps=''
}

finish() {
    if [ $failed = 0 ]; then
        echo "$1: all steps passed; outputs are in $report"
    else
        echo "$1: a step failed; outputs are in $report"
    fi
    exit $failed
}
