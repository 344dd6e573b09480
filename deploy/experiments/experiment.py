"""What the experiments share: runs of a job with several settings and seeds, and their pictures."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

HERE = os.path.dirname(os.path.realpath(__file__))
DEPLOY = os.path.dirname(HERE)
PAWLCTL = os.path.join(os.path.dirname(DEPLOY), "bazel-bin", "deploy", "pawlctl", "pawlctl")
# The longest run that is not hanging.
LIMIT_S = 900

FLAGS = """  --out=FOLDER    for the runs, results.csv and the picture; default: out/%(name)s
  --seeds=N       runs of each setting, with the seeds 1 to N; default: %(seeds)d
  --samples=N     training samples to generate; default: %(samples)d
  --epochs=N      default: %(epochs)d
  --pawlctl=FILE  default: bazel-bin/deploy/pawlctl/pawlctl of this tree

Build first: bazel build //deploy/pawlctl. The picture is curves.svg, or curves.csv with its figures
if matplotlib is not installed.
Exit codes: 0: done; 1: a run failed; 2: wrong usage.
"""


class Setting(NamedTuple):
    """One line of the picture."""

    name: str
    # Values of `pawlctl run --set`.
    changes: Sequence[str]
    # Further flags of `pawlctl run`.
    flags: Sequence[str] = ()


class Failure(Exception):
    """A run has failed."""


def parse(name: str, doc: str, **defaults: int) -> argparse.Namespace:
    """The flags of an experiment. Prints `doc` and exits if asked for help."""
    if "--help" in sys.argv or "-h" in sys.argv:
        print(doc.strip() + "\n" + (FLAGS % dict(defaults, name=name)).rstrip())
        sys.exit(0)
    parser = argparse.ArgumentParser(prog=name, usage="see deploy/experiments/%s --help" % name)
    parser.add_argument("--out", default=os.path.join("out", name))
    parser.add_argument("--pawlctl", default=PAWLCTL)
    for flag, default in defaults.items():
        parser.add_argument("--" + flag, type=int, default=default)
    options = parser.parse_args()
    for flag in defaults:
        if getattr(options, flag) < 1:
            parser.error("--%s must be at least 1" % flag)
    os.makedirs(options.out, exist_ok=True)
    return options


def generate(options: argparse.Namespace) -> None:
    """Writes the training and evaluation data to the output folder."""
    for name, samples, seed in (
        ("train", options.samples, 1),
        ("eval", max(options.samples // 4, 1), 2),
    ):
        subprocess.run(
            [
                sys.executable,
                os.path.join(DEPLOY, "data", "generate_clicks"),
                "--samples=%d" % samples,
                "--seed=%d" % seed,
                os.path.join(options.out, name + ".libsvm"),
            ],
            check=True,
        )


def run(options: argparse.Namespace, job: str, setting: Setting, seed: int) -> Dict[str, Any]:
    """Runs the job and returns its metrics.json. The files are in OUT/NAME-SEED."""
    folder = os.path.join(
        options.out, "%s-%d" % (setting.name.replace(" ", "_").replace(",", ""), seed)
    )
    path = os.path.join(options.out, "job.pbtxt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(job)
    command = [options.pawlctl, "run", "--job=" + path, "--out=" + folder]
    command += ["--set=seed=%d" % seed, "--set=epochs=%d" % options.epochs]
    command += ["--set=" + change for change in setting.changes] + list(setting.flags)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise Failure("%s\n%s%s" % (" ".join(command), done.stdout, done.stderr))
    with open(os.path.join(folder, "metrics.json"), encoding="utf-8") as file:
        metrics = json.load(file)
    metrics["curve"] = os.path.join(folder, "curve.jsonl")
    return metrics


def run_all(
    options: argparse.Namespace, job: str, settings: Sequence[Setting]
) -> Dict[str, List[Dict[str, Any]]]:
    """The metrics of all seeds by the settings' names. Prints what is done."""
    results: Dict[str, List[Dict[str, Any]]] = {}
    for seed in range(1, options.seeds + 1):
        # All settings of a seed before the next one: a slow phase of the machine hits all of them.
        for setting in settings:
            metrics = run(options, job, setting, seed)
            results.setdefault(setting.name, []).append(metrics)
            print(
                "%s, seed %d: %.1f s, logloss %.4f"
                % (setting.name, seed, metrics["wall_s"], metrics["eval"]["logloss"]),
                flush=True,
            )
    return results


def value_of(metrics: Dict[str, Any], path: str) -> Optional[float]:
    """The number at a path such as "eval.auc"; None if there is none."""
    value: Any = metrics
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, (int, float)) else None


def report(
    options: argparse.Namespace,
    results: Dict[str, List[Dict[str, Any]]],
    columns: Sequence[Tuple[str, str, str]],
) -> None:
    """Prints a table of medians over the seeds, and writes it to results.csv.

    columns: the heading, the path in metrics.json and the format of each figure.
    """
    rows = [["setting"] + [heading for heading, _, _ in columns]]
    for name, runs in results.items():
        row = [name]
        for _, path, form in columns:
            values = [v for v in (value_of(metrics, path) for metrics in runs) if v is not None]
            row.append(form % statistics.median(values) if values else "")
        rows.append(row)
    with open(os.path.join(options.out, "results.csv"), "w", encoding="utf-8") as file:
        file.write("".join(",".join(cell.replace(",", ";") for cell in row) + "\n" for row in rows))
    print("\n" + "\n".join("| " + " | ".join(row) + " |" for row in rows))


def draw(
    options: argparse.Namespace, results: Dict[str, List[Dict[str, Any]]], *flags: str
) -> None:
    """Draws the curves with deploy/plot_curves."""
    try:
        import matplotlib  # pylint: disable=unused-import

        picture = "curves.svg"
    except ImportError:
        picture = "curves.csv"
    subprocess.run(
        [
            sys.executable,
            os.path.join(DEPLOY, "plot_curves"),
            *flags,
            os.path.join(options.out, picture),
            *(
                "%s=%s" % (name, ",".join(metrics["curve"] for metrics in runs))
                for name, runs in results.items()
            ),
        ],
        check=True,
    )
    print("\npicture in " + os.path.join(options.out, picture))
