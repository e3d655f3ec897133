#!/usr/bin/env bash
# A real SLURM cluster on one Debian machine: munged, mariadbd, slurmdbd, slurmctld and a slurmd for each node.
# Every file lies under one folder. Run as root; without root only the jobs of that user can run.
#
#   cluster.sh install          Debian's packages (root)
#   cluster.sh start | stop     the whole cluster; started again, it goes on with its old state
#   cluster.sh run COMMAND...   start, run COMMAND against it, stop
#   cluster.sh env              the exports that make sbatch, squeue ... find it: eval "$(cluster.sh env)"
#   cluster.sh kill NAME        kill one part: lab1 ... lab4 (a node), slurmctld or slurmdbd
#   cluster.sh revive NAME      start that part again
set -euo pipefail

LAB=${SLURM_LAB:-/tmp/slurm-lab}              # every file of the cluster
NODES=${SLURM_LAB_NODES:-4}                   # lab1 ... labN, each with
CPUS=${SLURM_LAB_CPUS:-4} GPUS=${SLURM_LAB_GPUS:-4} MEMORY_MB=${SLURM_LAB_MEMORY_MB:-8000}
PORT=${SLURM_LAB_PORT:-18000}                 # the first of the ports: PORT ... PORT + 10 + NODES
ACCOUNTING=${SLURM_LAB_ACCOUNTING:-1}         # 0: no database, and sacct knows nothing

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
pids=$LAB/pids
export SLURM_CONF=$LAB/slurm.conf PATH=$PATH:/usr/sbin

fill() { # template
  sed -e "s|@LAB@|$LAB|g; s|@HOST@|$(hostname -s)|g; s|@USER@|$(id -un)|g" \
    -e "s|@PORT@|$PORT|g; s|@DBD_PORT@|$((PORT + 2))|g; s|@DB_PORT@|$((PORT + 3))|g" \
    -e "s|@FIRST_NODE_PORT@|$((PORT + 11))|g; s|@LAST_NODE_PORT@|$((PORT + 10 + NODES))|g" \
    -e "s|@NODES@|$NODES|g; s|@CPUS@|$CPUS|g; s|@GPUS@|$GPUS|g; s|@MEMORY_MB@|$MEMORY_MB|g" "$here/$1.in"
}

configure() {
  mkdir -p "$LAB"/{log,pids,state,munge,gpu}
  chmod 755 "$LAB" && chmod 700 "$LAB/munge"
  for i in $(seq 0 $((GPUS - 1))); do
    ln -sfn /dev/null "$LAB/gpu/$i" # must lead to a device, or SLURM never sets CUDA_VISIBLE_DEVICES
  done
  [ -s "$LAB/munge/key" ] || (umask 077 && head -c 128 /dev/urandom >"$LAB/munge/key")
  echo "Name=gpu File=$LAB/gpu/[0-$((GPUS - 1))]" >"$LAB/gres.conf"
  fill slurm.conf >"$SLURM_CONF"
  if [ "$ACCOUNTING" = 1 ]; then
    (umask 077 && fill slurmdbd.conf >"$LAB/slurmdbd.conf")
    cat >>"$SLURM_CONF" <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((PORT + 2))
AccountingStoragePass=$LAB/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
CONF
  else
    echo "AccountingStorageType=accounting_storage/none" >>"$SLURM_CONF"
  fi
}

alive() { # the name of a pid file, whose process may long be gone and its number be another's
  [ -s "$pids/$1.pid" ] && [[ "$(cat "/proc/$(cat "$pids/$1.pid")/comm" 2>/dev/null)" == "${1%%-*}"* ]]
}

wait_for() { # seconds, command
  local tries=$(($1 * 10)) && shift
  until "$@" >/dev/null 2>&1; do
    ((tries--)) || { echo "cluster.sh: gave up waiting for: $*. See $LAB/log" >&2 && return 1; }
    sleep 0.1
  done
}

gone() { ! alive "$1"; }

stop_one() { # the name of a pid file: TERM, and KILL after ten seconds
  alive "$1" || return 0
  kill "$(cat "$pids/$1.pid")"
  wait_for 10 gone "$1" 2>/dev/null || kill -9 "$(cat "$pids/$1.pid")"
  rm -f "$pids/$1.pid"
}

sql() { mariadb --no-defaults --user=root --socket="$LAB/db.socket" --execute="$1"; }

start_munged() {
  alive munged || munged --force --key-file="$LAB/munge/key" --socket="$LAB/munge/socket" --num-threads=2 \
    --pid-file="$pids/munged.pid" --log-file="$LAB/log/munged.log" --seed-file="$LAB/munge/seed"
}

start_mariadb() {
  alive mariadb && return
  [ -d "$LAB/db/mysql" ] || mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$LAB/db" --tmpdir="$LAB" \
    --auth-root-authentication-method=normal --skip-test-db >"$LAB/log/mariadb-install.log" 2>&1 ||
    { echo "cluster.sh: mariadb-install-db failed. See $LAB/log/mariadb-install.log" >&2 && return 1; }
  setsid mariadbd --no-defaults --user="$(id -un)" --datadir="$LAB/db" --socket="$LAB/db.socket" \
    --pid-file="$pids/mariadb.pid" --bind-address=127.0.0.1 --port=$((PORT + 3)) --skip-log-bin \
    --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-flush-log-at-trx-commit=0 \
    --innodb-lock-wait-timeout=900 >"$LAB/log/mariadb.log" 2>&1 </dev/null &
  wait_for 30 sql "select 1"
  sql "create user if not exists slurm@'127.0.0.1' identified by 'slurm'"
  sql "grant all on slurm_acct.* to slurm@'127.0.0.1'"
}

start_slurmdbd() { alive slurmdbd || { slurmdbd && wait_for 30 sacctmgr -n list qos; }; }
start_slurmctld() { alive slurmctld || { slurmctld -i && wait_for 20 scontrol ping; }; }
start_node() { alive "slurmd-$1" || { mkdir -p "$LAB/spool-$1" && slurmd -N "$1" </dev/null >/dev/null 2>&1; }; }

account() { # the one account that may submit, and a quality of service that takes one job at a time
  [ -z "$(sacctmgr -n list account lab)" ] || return 0
  sacctmgr -i -Q add cluster lab
  sacctmgr -i -Q add account lab Cluster=lab
  sacctmgr -i -Q add qos narrow MaxSubmitJobsPerUser=1
  sacctmgr -i -Q add user "$(id -un)" Account=lab
  sacctmgr -i -Q modify user "$(id -un)" set qos=normal,narrow defaultqos=normal
}

nodes_up() { [ "$(sinfo -h -N -p main -t idle,alloc,mix -o %N | sort -u | wc -l)" = "$NODES" ]; }

start() {
  configure
  start_munged
  if [ "$ACCOUNTING" = 1 ]; then
    start_mariadb
    start_slurmdbd
    account
  fi
  start_slurmctld
  for i in $(seq "$NODES"); do start_node "lab$i"; done
  sinfo -h -N -t drain -o %N | sort -u | while read -r node; do
    scontrol update NodeName="$node" State=RESUME # whatever an earlier run did to it
  done
  wait_for 20 nodes_up
}

kill_orphans() { # steps that outlived their slurmd, and their processes: both carry our SLURM_CONF
  local process
  for process in $(grep -lzx "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3); do
    if [ "$(cat "/proc/$process/comm" 2>/dev/null)" = slurmstepd ] ||
      grep -qz "^SLURM_JOB_ID=" "/proc/$process/environ" 2>/dev/null; then
      kill -9 "$process" 2>/dev/null || true
    fi
  done
}

no_jobs() { [ -z "$(timeout 5 squeue -h 2>/dev/null)" ]; }

stop() {
  if alive slurmctld; then
    timeout 5 scancel -u "$(id -un)" >/dev/null 2>&1 || true
    wait_for 8 no_jobs || true
  fi
  for i in $(seq "$NODES"); do stop_one "slurmd-lab$i"; done
  kill_orphans
  for part in slurmctld slurmdbd mariadb munged; do stop_one $part; done
}

kill_part() {
  case $1 in
    slurmctld) stop_one slurmctld ;; # by TERM: one that forgot its last seconds drains nodes ("Duplicate jobid")
    slurmdbd) kill -9 "$(cat "$pids/$1.pid")" && rm "$pids/$1.pid" ;;
    *) kill -9 "$(cat "$pids/slurmd-$1.pid")" && rm "$pids/slurmd-$1.pid" ;;
  esac
}

revive() {
  case $1 in
    slurmctld | slurmdbd) "start_$1" ;;
    *) start_node "$1" ;;
  esac
}

case ${1:-} in
  install)
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
      slurm-wlm slurmdbd munge mariadb-server-core mariadb-client-core
    ;;
  start) start ;;
  stop) stop ;;
  run) shift && trap stop EXIT && start && "$@" ;;
  env) echo "export SLURM_CONF=$SLURM_CONF" ;;
  kill) kill_part "$2" ;;
  revive) revive "$2" ;;
  *) sed -n '2,/^set/{/^#/p}' "${BASH_SOURCE[0]}" && exit 2 ;;
esac
