#!/usr/bin/env bash
# A Slurm cluster on this machine, for tests: no systemd, no cgroups, no accounting; Debian's packages, as root.
#   slurm.sh install        what it needs of Debian; fails aloud where that cannot be had
#   slurm.sh start FOLDER   NODES, CPUS and MEM (MB, of each node) may be set
#   slurm.sh stop FOLDER
# The executor's jobs find the cluster by /etc/slurm/slurm.conf only, so one such cluster a machine at a time; stop takes the
# file away, since every snakemake on a machine with that file and no controller waits for one.
set -euo pipefail

CONF=/etc/slurm/slurm.conf

fail() {
  echo "slurm.sh: $*" >&2
  exit 1
}

install() {
  if type slurmctld slurmd munged squeue sbatch scontrol >/dev/null 2>&1; then return; fi
  [ "$(id -u)" = 0 ] || fail "Slurm is not installed, and only root can install it: apt-get install slurm-wlm munge"
  { apt-get update -qq \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge; } >&2 \
    || fail "the packages slurm-wlm and munge cannot be had here"
}

start() {
  local folder=$1 nodes=${NODES:-2} cpus=${CPUS:-4} mem=${MEM:-16000} host
  host=$(hostname -s)
  [ "$(id -u)" = 0 ] || fail "only root can start Slurm's daemons"
  [ ! -e "$CONF" ] || fail "$CONF is there already: another cluster, or one that was not stopped"
  mkdir -p "$folder"/{munge,state,log,run}
  for node in $(seq "$nodes"); do mkdir -p "$folder/spool/n$node"; done
  chmod 755 "$folder" "$folder"/{state,log,run,spool}
  chmod 700 "$folder/munge"
  (umask 077 && head -c 128 /dev/urandom >"$folder/munge/key")
  munged --force --key-file="$folder/munge/key" --socket="$folder/run/munge.socket" \
    --pid-file="$folder/run/munged.pid" --log-file="$folder/munge/munged.log" --seed-file="$folder/munge/munged.seed"
  mkdir -p "$(dirname "$CONF")"
  # a step that holds more memory than its job asked for is killed: the accounting plugin looks each second
  cat >"$CONF" <<EOF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/run/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,batch_sched_delay=0
PriorityType=priority/basic
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MinJobAge=3600
KillWait=5
SlurmdParameters=config_overrides
DefMemPerCPU=1000
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[17001-$((17000 + nodes))] CPUs=$cpus Sockets=1 CoresPerSocket=$cpus ThreadsPerCore=1 RealMemory=$mem State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=600 DefaultTime=10 State=UP
EOF
  slurmctld
  for node in $(seq "$nodes"); do slurmd -N "n$node"; done
  for _ in $(seq 150); do
    [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = "$nodes" ] && return
    sleep 0.2
  done
  fail "the nodes did not come up in 30 s; logs in $folder/log"
}

stop() {
  local folder=$1 pidfile pid ours=""
  grep -qsxF "StateSaveLocation=$folder/state" "$CONF" && ours=yes
  # jobs outlive the daemons
  [ -z "$ours" ] || scancel --user=root 2>/dev/null || true
  for pidfile in "$folder"/run/slurmd.*.pid "$folder"/run/slurmctld.pid "$folder"/run/munged.pid; do
    [ -s "$pidfile" ] || continue
    pid=$(cat "$pidfile")
    kill "$pid" 2>/dev/null || continue
    for _ in $(seq 100); do
      case $(ps -o stat= -p "$pid") in "" | Z*) break ;; esac
      sleep 0.1
    done
  done
  [ -z "$ours" ] || rm -f "$CONF"
}

case ${1:-} in
  install) install ;;
  start) start "$(realpath -m "${2:?a folder}")" ;;
  stop) stop "$(realpath -m "${2:?a folder}")" ;;
  *) fail "install, start FOLDER or stop FOLDER" ;;
esac
