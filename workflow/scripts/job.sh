# The shell of every job reads this file before it runs the command of the job.

# A run is alive as long as one of its jobs holds this lock, even if Snakemake has ended (afa/paper/workflow.py).
if [ -r .snakemake/alive ] && command -v flock > /dev/null; then
  exec 9< .snakemake/alive
  flock --shared 9 || true
fi

# Compiled kernels are cached in the folder that workflow/rules/kernels.smk uses, unless the user sets another folder.
export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR:-$PWD/.snakemake/afa_kernels}"

# Write the processor time of the job and its children (getrusage) to `benchmarks`, under the name of the log in `logs`.
# Then report errors that the job itself cannot report: the job was killed, or the disk with its log is full.
afterwards() {
  local code=$? again="then give the same command again" free_kb
  if [[ ${BASH_EXECUTION_STRING-} =~ \>\ ([^ ]+)/logs/([^ ]+)\.log ]]; then
    { LC_ALL=C times > "${BASH_REMATCH[1]}/benchmarks/${BASH_REMATCH[2]}.times"; } 2> /dev/null || true
  fi
  free_kb=$(($(stat -f -c '%a * %S / 1024' . || echo 64)))
  if [ "$code" -gt 128 ]; then
    echo "afa: a job: found its end by signal $((code - 128)); expected an end of its own. Next step: if that was 9," \
      "it may have been memory (the log of the kernel tells): give it more, $again." >&2
  elif [ "$code" -gt 0 ] && [ "$free_kb" -lt 64 ]; then
    echo "afa: a job: found $free_kb kB free on the disk of $PWD; expected room for results and logs. Next step: free" \
      "some, $again." >&2
  fi
}
trap afterwards EXIT
