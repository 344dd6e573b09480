"""The virtual environment in which the peers are installed."""

import dataclasses
import os
import subprocess
import sys
import venv

INSTALL_TIMEOUT_S = 1800
TAIL_LINES = 6


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of pip: the packages, and whether pip also installs what they depend on."""

    packages: tuple[str, ...]
    with_dependencies: bool = True


# The build of torch without CUDA has a local version. The registry of PyPI has only the build with
# CUDA, which needs some 4 GB.
TORCH = "torch==2.13.0+cpu"
TORCH_STEPS = (Step((TORCH, "numpy")),)
# TorchRec depends on the FBGEMM with CUDA. The versions fit torch.
TORCHREC_STEPS = TORCH_STEPS + (
    Step(("fbgemm-gpu-cpu==1.8.0", "torchrec==1.8.0"), with_dependencies=False),
    # What torchrec imports.
    Step((TORCH, "tensordict", "torchmetrics==1.0.3", "tqdm", "pyre-extensions", "iopath")),
)
TENSORFLOW_STEPS = (Step(("tensorflow-cpu", "numpy")),)
PICTURE_STEPS = (Step(("matplotlib",)),)

TORCH_ADVICE = (
    "pip must find the build without CUDA: set PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS to a place "
    "that has %s (PyTorch's page for CPU builds names one)" % TORCH
)


class CannotInstall(Exception):
    """pip could not install a package; the message says why."""


class PeersEnvironment:
    """A virtual environment in a folder, made when first needed."""

    def __init__(self, folder: str):
        self._folder = folder
        self._done: dict[Step, str] = {}

    @property
    def python(self) -> str:
        """The path of its interpreter."""
        return os.path.join(self._folder, "bin", "python")

    def install(self, steps: tuple[Step, ...]) -> None:
        """Installs packages that are missing. Raises CannotInstall."""
        if not os.path.exists(self.python):
            print("bench: creating a virtual environment in %s" % self._folder, file=sys.stderr)
            try:
                venv.create(self._folder, with_pip=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise CannotInstall(
                    "no virtual environment: %s (Debian: apt-get install python3-venv)" % error
                ) from error
        for step in steps:
            if step not in self._done:
                self._done[step] = "" if self._has(step) else self._call_pip(step)
            if self._done[step]:
                raise CannotInstall(self._done[step])

    def versions(self) -> dict[str, str]:
        """The installed packages and their versions; none if there is no environment."""
        if not os.path.exists(self.python):
            return {}
        script = (
            "import importlib.metadata as m;"
            "[print(d.name, d.version) for d in m.distributions()]"
        )
        done = subprocess.run(
            [self.python, "-c", script], capture_output=True, text=True, check=False
        )
        return dict(
            (line.split()[0].lower().replace("_", "-"), line.split()[1])
            for line in done.stdout.splitlines()
            if len(line.split()) == 2
        )

    def _has(self, step: Step) -> bool:
        versions = self.versions()
        for package in step.packages:
            name, _, version = package.partition("==")
            if versions.get(name, "") != (version or versions.get(name)):
                return False
        return True

    def _call_pip(self, step: Step) -> str:
        """Returns what went wrong, or ""."""
        print("bench: installing %s with pip" % " ".join(step.packages), file=sys.stderr)
        command = [self.python, "-m", "pip", "install", "--quiet", *step.packages]
        if not step.with_dependencies:
            command.append("--no-deps")
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=INSTALL_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return "pip install %s took longer than %d s" % (
                " ".join(step.packages),
                INSTALL_TIMEOUT_S,
            )
        if done.returncode == 0:
            return ""
        said = "\n".join(done.stderr.strip().splitlines()[-TAIL_LINES:])
        advice = "\n" + TORCH_ADVICE if TORCH in step.packages else ""
        return "pip install %s failed:\n%s%s" % (" ".join(step.packages), said, advice)
