"""A Ray cluster of two nodes on this machine, and a command on it; the cluster ends with the command.

    pip install 'edgewise[ray]'
    python examples/cluster/two_nodes.py run --task ioi --out results/two-nodes

What follows the script's name is an edgewise command with its options: run, score, evaluate or study. It is the way to
try, on a laptop, what a cluster of real machines does: kill a worker, or a whole node, and the command goes on.
"""

from __future__ import annotations

import os
import subprocess
import sys

from ray.cluster_utils import Cluster


def main(words: list[str]) -> int:
    """Run a command of edgewise on two nodes, which have half of this machine's CPUs each; says how it ended."""
    each = max(1, (os.cpu_count() or 2) // 2)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": each, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=each)
        print(f"two nodes of {each} CPUs at {cluster.address}", file=sys.stderr)
        where = ["--engine", "ray", "--address", cluster.address]
        return subprocess.run([sys.executable, "-m", "edgewise", *words, *where]).returncode
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["run"]))
