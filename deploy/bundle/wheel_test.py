"""Uses the installed wheel beside torch's own libraries.

Usage: wheel_test.py VERSION SITE [--worker]
"""

import email
import pathlib
import re
import sys

# Before Pawl, so that its libraries are loaded first.
import torch

import pawl
import pawl.torch as pt


def check_installation(version: str, site: str) -> None:
    """The files are those of the wheel, and no gRPC of the machine is used."""
    assert pawl.__version__ == version, (pawl.__version__, version)
    version = version.replace("-dev", ".dev0")  # PEP 440
    info = pathlib.Path(site, "pawl_ps-%s.dist-info" % version)
    metadata = email.message_from_string(info.joinpath("METADATA").read_text("utf-8"))
    assert metadata["Name"] == "pawl-ps" and metadata["Version"] == version, metadata
    assert info.joinpath("licenses", "libgrpc29").exists(), "the licence of gRPC"
    mapped = set(re.findall(r"\S+\.so\S*", pathlib.Path("/proc/self/maps").read_text("utf-8")))
    for name in ("libprotobuf", "libgrpc.", "libabsl"):
        # torch may bring its own; ours have names of their own.
        ours = [path for path in mapped if path.startswith(site) and name in path]
        assert all("-pawl-" in path for path in ours), ours
    assert any("/pawl/lib/libgrpc-pawl-" in path for path in mapped), sorted(mapped)
    for path in mapped:
        if "libgrpc" in path:
            assert path.startswith(site), path


def train(client: pawl.Client) -> None:
    """One table by torch and Pawl in one process."""
    module = pt.EmbeddingBag("rows", 4, optimizer=pawl.SGD(0.1), init=pawl.Normal(0, 1))
    optimizer = pt.SparseOptimizer(module, client)
    keys = torch.arange(100).view(25, 4)
    losses = []
    for _ in range(10):
        loss = (module(keys) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.wait()
        losses.append(float(loss))
    assert losses[-1] < losses[0], losses


def main() -> None:
    """Checks, as a program of its own or as a worker."""
    version, site = sys.argv[1:3]
    if "--worker" not in sys.argv:
        check_installation(version, site)
        with pawl.LocalCluster() as cluster, cluster.client() as client:
            train(client)
        return
    job = pawl.init()
    net = pt.Embedding("rows", 2, optimizer=pawl.SGD(0.1))
    optimizer = pt.Optimizer(net)
    data = pawl.data.Arrays(torch.arange(64), batch_size=16, epochs=2)
    for (keys,) in job.steps(data, prefetch=lambda batch: {net: batch[0]}):
        (net(keys) ** 2).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
