# Functions that the batch scripts share; they source this file.
# GNNRAG_HOME is the repository; GNNRAG_SETUP, written from the site file, loads modules and may set `python`.
cd "$GNNRAG_HOME" || exit 2
export PYTHONPATH="$GNNRAG_HOME${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python="$GNNRAG_HOME/.venv/bin/python" # in a container: apptainer exec --nv FILE.sif python3
# shellcheck source=/dev/null
if [ -s "${GNNRAG_SETUP:-}" ]; then source "$GNNRAG_SETUP"; fi

child="" is_stopping=0 rc=0
# SLURM sends USR1 before the time limit or a preemption, and TERM when the job is cancelled.
trap 'is_stopping=1; [ -z "$child" ] || kill -s "${forward:-USR1}" "$child"' USR1
trap '[ -z "$child" ] || kill -s TERM "$child"' TERM

# Run a command to its end, passing signals on; sets rc.
run() {
    "$@" &
    child=$!
    while :; do
        rc=0
        wait "$child" || rc=$?
        kill -0 "$child" 2>/dev/null || break # a trapped signal ends `wait` before the command ends
    done
    child=""
}

# Exit with the command's code. After USR1 the job goes back into the queue, at most 50 times.
finish() {
    if [ "$rc" -ne 0 ] && [ "$is_stopping" -eq 1 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ]; then
        echo "stopped before its end, queued again" >&2
        scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
        sleep 60 # SLURM ends this shell
    fi
    exit "$rc"
}
