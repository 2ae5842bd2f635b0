"""Start a Ray cluster of two nodes on this machine, run an edgewise command on it, and stop the cluster.

    pip install 'edgewise[ray]'
    python examples/cluster/two_nodes.py run --task ioi --out results/two-nodes

The arguments are an edgewise command with its options: run, score, evaluate or study. Use it to try on a laptop what a
real cluster does: if you kill a worker or a node, the command continues.
"""

from __future__ import annotations

import os
import subprocess
import sys

from ray.cluster_utils import Cluster


def main(command: list[str]) -> int:
    """Run the command on two nodes, each with half of the CPUs. Return its exit code."""
    cpus = max(1, (os.cpu_count() or 2) // 2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=cpus)
        print(f"two nodes with {cpus} CPUs each at {cluster.address}", file=sys.stderr)
        engine = ["--engine", "ray", "--address", cluster.address]
        return subprocess.run([sys.executable, "-m", "edgewise", *command, *engine]).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["run"]))
