#!/usr/bin/env bash
# Run edgewise on several machines of a SLURM cluster: a Ray head on the first machine, a Ray node on each other one.
#
#   sbatch --nodes 4 examples/cluster/slurm.sh run --model meta-llama/Llama-3.1-8B --task ioi --out results/llama-ioi
#
# If the job runs out of time, submit the same command again to resume. The virtual environment, the model files and
# --out must be on a file system that all machines share.
#SBATCH --job-name=edgewise
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
set -euo pipefail

export RAY_USAGE_STATS_ENABLED=0
# Only processes with this token can join the cluster.
export RAY_AUTH_MODE=token
RAY_AUTH_TOKEN=$(python -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_TOKEN
port=${RAY_PORT:-6379}
gpus=${SLURM_GPUS_ON_NODE:-0}
cpus=${SLURM_CPUS_PER_TASK:-1}
mapfile -t machines < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${machines[0]}
address="$head:$port"

run_on() { # MACHINE COMMAND...
  local machine=$1
  shift
  srun --nodes=1 --ntasks=1 --overlap --nodelist="$machine" "$@"
}
count_nodes() { # print the number of machines that have joined
  run_on "$head" ray status --address "$address" 2>/dev/null | grep -cE '^ *1 node_' || true
}
start_ray=(ray start --block --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats)

run_on "$head" "${start_ray[@]}" --head --port="$port" --include-dashboard=false &
until [ "$(count_nodes)" -ge 1 ]; do sleep 2; done
for machine in "${machines[@]:1}"; do
  run_on "$machine" "${start_ray[@]}" --address="$address" &
done
# Machines can join later, but the number of GPUs at the start decides how the work is split.
for _ in $(seq 60); do
  [ "$(count_nodes)" -ge "${#machines[@]}" ] && break
  sleep 2
done

run_on "$head" edgewise "$@" --engine ray --address "$address"
