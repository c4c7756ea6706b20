# What the batch scripts share. Sourced by them, after `set -euo pipefail`.
#
# A job saves and goes back into the queue when its time limit is near or another job needs its place: SLURM signals this
# shell alone (--signal=B:USR1@N), which makes the stop file that every process looks for, and passes the signal on.
#
# submit.py exports GNNRAG_HOME (the repository), GNNRAG_JOB (the job's folder) and GNNRAG_SETUP (modules, Python,
# container; see setup_script in gnnrag/cluster/slurm.py). Without them, as in `sbatch slurm/index.sbatch CONFIG`, the
# repository is where the job was submitted, and Python that of .venv.

if [ -z "${GNNRAG_HOME:-}" ]; then GNNRAG_HOME="${SLURM_SUBMIT_DIR:-$PWD}"; fi
cd "$GNNRAG_HOME"
export GNNRAG_HOME PYTHONPATH="$GNNRAG_HOME${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

python=("$GNNRAG_HOME/.venv/bin/python") vllm=(vllm serve) srun_flags=()
if [ -n "${GNNRAG_SETUP:-}" ]; then
    set +u # `module`, and what it loads, may read variables that are not set
    # shellcheck source=/dev/null
    source "$GNNRAG_SETUP"
    set -u
fi

job="${GNNRAG_JOB:-$GNNRAG_HOME/runs/jobs/${SLURM_JOB_NAME:-job}-${SLURM_ARRAY_JOB_ID:-${SLURM_JOB_ID:-0}}}"
task="${SLURM_ARRAY_TASK_ID:-0}"
restarts="${SLURM_RESTART_COUNT:-0}"
mkdir -p "$job"
export GNNRAG_STOP_FILE="$job/stop-$task"
rm -f "$GNNRAG_STOP_FILE"
: >"$job/started-$task"

child="" is_told=0 rc=0
forward=same # the signal that the command gets: the same, another one by name, or no
tell() {
    is_told=1
    : >"$GNNRAG_STOP_FILE"
    local signal="$forward"
    if [ "$signal" = same ]; then signal="$1"; fi
    if [ -n "$child" ] && [ "$signal" != no ]; then kill -s "$signal" "$child" 2>/dev/null || true; fi
}
trap 'tell USR1' USR1
trap 'tell TERM' TERM

# Become the command; in a container of pyxis it is a step of its own. A script may define `become` anew.
single() {
    if [ "${#srun_flags[@]}" -gt 0 ]; then exec srun --nodes=1 --ntasks=1 "${srun_flags[@]}" "$@"; fi
    exec "$@"
}
become() { single "$@"; }

# Run a command to its end, whatever signals come in between; sets rc.
run() {
    (
        trap - USR1 TERM
        become "$@"
    ) &
    child=$!
    if [ "$is_told" -eq 1 ]; then tell TERM; fi
    while :; do
        rc=0
        wait "$child" || rc=$?
        kill -0 "$child" 2>/dev/null || break # a trapped signal ends `wait` before the command ends
    done
    child=""
}

# How far the job has come, as one word, where the job's Python is: empty for what begins anew with every start. Fails
# where it cannot be told, as of a job that submit.py does not know.
progress() {
    if [ ! -f "$job/job.json" ]; then return 1; fi
    (single "${python[@]}" slurm/progress.py "$job" "$task")
}

# Write down how a task ended, for submit.py.
record() {
    printf '%s %s\n' "$1" "$2" >"$job/.ended-$task"
    mv "$job/.ended-$task" "$job/ended-$task"
    rm -f "$GNNRAG_STOP_FILE"
}

# Record it, and end.
finish() {
    record "$1" "$2"
    exit "$1"
}

# Whether SLURM is ending the job by itself: a person has cancelled it, or it is put back into the queue anyway. One
# that only ran out of time may come back.
is_being_ended() {
    local told
    told="$(scontrol show job -o "$1" 2>/dev/null || true)"
    case "$told" in
        "" | *JobState=RUNNING* | *JobState=SUSPENDED* | *Reason=TimeLimit*) return 1 ;;
    esac
}

# End with the command's exit code, or go back into the queue where it was told to stop before its end.
finish_or_requeue() {
    if [ "$rc" -eq 0 ]; then finish 0 done; fi
    if [ "$is_told" -eq 0 ] && [ "$rc" -ne 75 ]; then finish "$rc" failed; fi
    local now idle=0 id="$SLURM_JOB_ID"
    if [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then id="${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; fi
    if is_being_ended "$id"; then
        record 75 "ended by SLURM"
        exit 143
    fi
    if now="$(progress)"; then
        if [ -f "$job/progress-$task" ] && [ "$now" = "$(cat "$job/progress-$task")" ]; then
            idle="$(cat "$job/idle-$task" 2>/dev/null || true)"
            if ! [[ "$idle" =~ ^[0-9]{1,6}$ ]]; then idle=0; fi # in $((...)) bash would run what stands there
            idle=$((10#$idle + 1))
        fi
        printf '%s\n' "$now" >"$job/progress-$task"
        printf '%s\n' "$idle" >"$job/idle-$task"
    fi
    if [ "$idle" -ge 2 ]; then
        echo "stopped again without having got further: it needs more time (jobs.KIND.time of the site file)" >&2
        finish 1 "no progress between two starts"
    fi
    if [ "$restarts" -ge "${GNNRAG_MAX_RESTARTS:-50}" ]; then
        echo "started $((restarts + 1)) times: not queued again; the same submit command goes on" >&2
        finish 1 "stopped after too many starts"
    fi
    echo "stopped before its end, queued again (start $((restarts + 1)))" >&2
    record 75 "queued again"
    # Where the site queues again what exits with 75, that is enough.
    if ! scontrol show config | grep -E '^RequeueExit +=(.*[ ,])?75(,|$)' >/dev/null; then # -q would break the pipe
        scontrol requeue "$id" # SLURM then ends this shell
        sleep 60
    fi
    exit 75
}
