#!/usr/bin/env bash
# A run on several machines of a SLURM cluster: a Ray head on the first, a Ray node on each of the others, and the
# command on top of them.
#
#   sbatch --nodes 4 examples/cluster/slurm.sh run --model meta-llama/Llama-3.1-8B --task ioi --out results/llama-ioi
#
# Give the same command again if the job ran out of time: it goes on from what was finished. The virtual environment,
# the model's files and --out must lie where all machines find them.
#SBATCH --job-name=edgewise
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
set -euo pipefail

export RAY_USAGE_STATS_ENABLED=0
# Whoever joins the cluster must know a token, which is this job's own.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN
port=${RAY_PORT:-6379}
gpus=${SLURM_GPUS_ON_NODE:-0}
cpus=${SLURM_CPUS_PER_TASK:-1}
mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]}
address="$head:$port"

on() { # a machine, and what to run there
  local machine=$1
  shift
  srun --nodes=1 --ntasks=1 --overlap --nodelist="$machine" "$@"
}
alive() { # how many machines have joined
  on "$head" ray status --address "$address" 2>/dev/null | grep -cE '^ *1 node_' || true
}
begin=(ray start --block --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats)

on "$head" "${begin[@]}" --head --port="$port" --include-dashboard=false &
until [ "$(alive)" -ge 1 ]; do sleep 2; done
for machine in "${machines[@]:1}"; do
  on "$machine" "${begin[@]}" --address="$address" &
done
# Machines that come later join in, but how work is cut depends on how many GPUs are there at the start.
for _ in $(seq 60); do
  [ "$(alive)" -ge "${#machines[@]}" ] && break
  sleep 2
done

on "$head" edgewise "$@" --engine ray --address "$address"
