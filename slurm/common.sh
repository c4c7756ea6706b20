# What the batch scripts share. Sourced by them.
# GNNRAG_HOME is the repository; GNNRAG_SETUP, written from the site file, loads modules and may set `python`.
cd "$GNNRAG_HOME" || exit 2
export PYTHONPATH="$GNNRAG_HOME${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
python="$GNNRAG_HOME/.venv/bin/python" # with words before it in a container: apptainer exec --nv FILE.sif python3
# shellcheck source=/dev/null
if [ -s "${GNNRAG_SETUP:-}" ]; then source "$GNNRAG_SETUP"; fi

child="" is_told=0 rc=0
# USR1 comes before the time limit, or where another job needs the place; TERM where a person has cancelled the job.
trap 'is_told=1; [ -z "$child" ] || kill -s "${forward:-USR1}" "$child"' USR1
trap '[ -z "$child" ] || kill -s TERM "$child"' TERM

# Run a command to its end, whatever signals come in between; sets rc.
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

# End with the command's exit code; where it was told to stop before its end, go back into the queue.
finish() {
    if [ "$rc" -ne 0 ] && [ "$is_told" -eq 1 ] && [ "${SLURM_RESTART_COUNT:-0}" -lt 50 ]; then
        echo "stopped before its end, queued again" >&2
        scontrol requeue "${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}"
        sleep 60 # SLURM ends this shell
    fi
    exit "$rc"
}
