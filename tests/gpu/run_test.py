#!/usr/bin/env python3
"""Tests which parts of tests/gpu/run pass, fail and are skipped, with a fake machine and bundle."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest

RUN = os.path.join(os.path.dirname(os.path.realpath(__file__)), "run")
# Far longer than any test takes, so only a hang reaches it.
LIMIT_S = 60

# Writes metrics.json as pawlctl does, with the GPU score from the environment. Earlier evaluations
# differ.
PAWLCTL = """#!/bin/bash
[[ "$1" == --version ]] && { echo "pawlctl 1.2.3"; exit; }
echo "$*" >> "$CALLS"
auc=0.9 digest=0a0b0c0d
for argument in "$@"; do
  [[ "$argument" == --out=* ]] && out="${argument#*=}"
  [[ "$argument" == --device=cuda:* ]] && auc="$GPU_AUC"
  [[ "$argument" == --cuda_graphs ]] && digest="$GRAPHS_DIGEST"
done
[[ "$auc" == die ]] && { echo 'the "GPU" is on fire'; exit 1; }
mkdir -p "$out/logs"
echo "$NCCL_LINE" > "$out/logs/worker-0.log"
cat > "$out/metrics.json" << END
{
  "samples_per_s": 1000.5,
  "digest": "$digest",
  "eval": {
    "evaluation": 2,
    "auc": $auc,
    "accuracy": 0.75
  },
  "evaluations": [
    {
      "auc": 0.1
    }
  ]
}
END
"""
# The output of the real program.
GPU_KERNELS = """#!/bin/bash
if [[ "$*" == *--check* ]]; then
  [[ "$KERNELS_EXIT" == 0 ]] && error="" || error="INTERNAL: off by one"
  printf '{\\n  "checks": [\\n    {\\n      "error": "%s",\\n' "$error"
  printf '      "operation": "Gemm"\\n    }\\n  ]\\n}\\n'
  exit "$KERNELS_EXIT"
fi
[[ "$KERNELS_EXIT" == 0 ]] || { echo "no driver" >&2; exit 3; }
cat << END
{
  "kernels": [
    {
      "floor_us": 1.2,
      "operation": "Gemm, \\"wide\\"",
      "ratio": 1.25,
      "shape": "65536x512x256",
      "time_us": 1.5
    },
    {
      "floor_us": 2.0,
      "operation": "Relu",
      "ratio": 1.5,
      "shape": "65536x512",
      "time_us": 3.0
    }
  ]
}
END
"""
SANITIZER = """#!/bin/bash
[[ "$2" != "$SANITIZER_FINDS" ]] || { echo "1 error"; exit 9; }
[[ "$*" == *"/bin/gpu_kernels --device=cuda:0 --check" ]] || exit 8
"""
STEP = """#!/bin/bash
echo '{"model":"'"$1"'","median_ms":1.25,"best_ms":1.0}'
"""


class RunTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.environment = {
            "PATH": self.path("tools") + ":/usr/bin:/bin", "CALLS": self.path("calls"),
            "GPU_AUC": "0.9", "NCCL_LINE": "NCCL version 2.28.3+cuda13.0", "KERNELS_EXIT": "0",
            "SANITIZER_FINDS": "", "GRAPHS_DIGEST": "0a0b0c0d"}
        self.program("bundle/bin/pawlctl", PAWLCTL)
        self.program("bundle/bin/gpu_kernels", GPU_KERNELS)
        self.program("bundle/bin/training_step", STEP)
        self.program("bundle/lib/libpawl_cuda.so", "")
        self.program("bundle/lib/libpawl_nccl.so", "")
        self.program("tools/nvidia-smi", "#!/bin/sh\necho 'NVIDIA X, 580.1, 1000 MiB'\n")
        self.program("tools/compute-sanitizer", SANITIZER)
        self.program("tools/python3", "#!/bin/sh\nexit 1\n")

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path(name), 0o755)

    def run_it(self, *arguments):
        """The exit code, stdout, stderr, and the parts' results by name."""
        done = subprocess.run(
            [RUN, "--bundle=" + self.path("bundle"), "--out=" + self.path("out"), *arguments],
            text=True, capture_output=True, timeout=LIMIT_S, check=False, env=self.environment)
        try:
            with open(self.path("out/results.json"), encoding="utf-8") as file:
                self.results = json.load(file)
        except FileNotFoundError:
            self.results = {"parts": []}
        parts = {part["part"]: part for part in self.results["parts"]}
        return done.returncode, done.stdout, done.stderr, parts

    def outcome(self, *arguments):
        code, out, err, parts = self.run_it(*arguments)
        self.assertEqual(err, "", out)
        return code, {name: part["result"] for name, part in parts.items()}

    def test_all_parts_pass(self):
        code, out, _, parts = self.run_it()
        self.assertEqual(code, 0, out)
        self.assertEqual(
            {name: part["result"] for name, part in parts.items()},
            {"kernels": "passed", "train": "passed", "graphs": "skipped", "hybrid": "passed",
             "sanitizer": "passed", "bench": "passed", "pytorch": "skipped"})
        self.assertEqual(self.results["gpu"], "NVIDIA X, 580.1, 1000 MiB")
        self.assertEqual(self.results["pawl"], "pawlctl 1.2.3")
        self.assertEqual(parts["train"]["values"]["example_auc"], {"device": 0.9, "cpu": 0.9})
        kernels = parts["bench"]["values"]["report"]["kernels"]
        self.assertEqual([kernel["time_us"] for kernel in kernels], [1.5, 3.0])
        self.assertRegex(out, r"Gemm wide +65536x512x256 +1\.50 +1\.20 +1\.25\n"
                              r" +Relu +65536x512 +3\.00 +2\.00 +1\.50\n")
        self.assertIn("1 checks, all equal", out)
        self.assertEqual(parts["pytorch"]["values"]["dlrm"]["pawl"]["median_ms"], 1.25)
        self.assertIn("5 passed, 0 failed, 2 skipped", out)
        with open(self.path("calls"), encoding="utf-8") as file:
            calls = file.read()
        self.assertIn("--device=cuda:0 --collectives=nccl --workers=2 --set=dense_path=ALLREDUCE",
                      calls)

    def test_different_score_fails_the_run(self):
        self.environment["GPU_AUC"] = "0.9011"
        code, out, _, parts = self.run_it("--part=train")
        self.assertEqual((code, parts["train"]["result"]), (1, "failed"), out)
        self.assertIn("auc 0.9011 on cuda:0, 0.9 on the CPU", parts["train"]["why"])
        self.environment["GPU_AUC"] = "0.8989"
        self.assertEqual(self.outcome("--part=train"), (1, {"train": "failed"}))
        self.environment["GPU_AUC"] = "0.9009"
        self.assertEqual(self.outcome("--part=train"), (0, {"train": "passed"}))
        self.assertEqual(self.outcome("--part=train", "--tolerance=0.0005"),
                         (1, {"train": "failed"}))

    def test_failed_run_reports_the_end_of_its_log(self):
        self.environment["GPU_AUC"] = "die"
        code, _, _, parts = self.run_it("--part=train")
        self.assertEqual((code, parts["train"]["result"]), (1, "failed"))
        self.assertIn('the "GPU" is on fire', parts["train"]["why"])

    def test_graphs_need_equal_digests(self):
        os.mkdir(self.path("images"))
        arguments = ("--part=graphs", "--fashion_mnist=" + self.path("images"))
        code, _, _, parts = self.run_it(*arguments)
        self.assertEqual((code, parts["graphs"]["result"]), (0, "passed"), parts)
        self.assertEqual(parts["graphs"]["values"]["samples_per_s"],
                         {"plain": 1000.5, "graphs": 1000.5})
        self.environment["GRAPHS_DIGEST"] = "0a0b0c0e"
        code, _, _, parts = self.run_it(*arguments)
        self.assertEqual((code, parts["graphs"]["result"]), (1, "failed"))
        self.assertIn("0a0b0c0e with it", parts["graphs"]["why"])
        with open(self.path("calls"), encoding="utf-8") as file:
            self.assertEqual(["--cuda_graphs" in call for call in file], [False, True] * 2)
        self.environment["GPU_AUC"] = "die"
        self.assertEqual(self.outcome(*arguments), (1, {"graphs": "failed"}))

    def test_hybrid_without_nccl_fails(self):
        self.environment["NCCL_LINE"] = "by gloo"
        self.assertEqual(self.outcome("--part=hybrid"), (1, {"hybrid": "failed"}))

    def test_bundle_without_nccl_skips_hybrid(self):
        os.remove(self.path("bundle/lib/libpawl_nccl.so"))
        code, _, _, parts = self.run_it("--part=hybrid", "--part=kernels")
        self.assertEqual((code, parts["hybrid"]["result"], parts["kernels"]["result"]),
                         (0, "skipped", "passed"))
        self.assertIn("libpawl_nccl.so", parts["hybrid"]["why"])

    def test_findings_of_kernels_and_sanitizer_fail(self):
        self.environment["KERNELS_EXIT"] = "1"
        code, _, _, parts = self.run_it("--part=kernels", "--part=bench")
        self.assertEqual((code, parts["kernels"]["result"], parts["bench"]["result"]),
                         (1, "failed", "failed"))
        self.assertIn("off by one", parts["kernels"]["why"])
        self.assertIn("no driver", parts["bench"]["why"])
        self.environment.update(KERNELS_EXIT="0", SANITIZER_FINDS="racecheck")
        self.assertEqual(self.outcome("--part=sanitizer", "--part=kernels"),
                         (1, {"sanitizer": "failed", "kernels": "passed"}))

    def test_bundle_without_the_toolkit_skips_its_parts(self):
        os.remove(self.path("bundle/lib/libpawl_cuda.so"))
        code, _, _, parts = self.run_it()
        self.assertEqual(code, 1, "no part has passed")
        for part in ("kernels", "train", "graphs", "hybrid", "bench", "sanitizer", "pytorch"):
            self.assertEqual(parts[part]["result"], "skipped")
            self.assertIn("without the CUDA toolkit", parts[part]["why"])

    def test_run_without_a_passed_part_fails(self):
        os.remove(self.path("bundle/bin/gpu_kernels"))
        self.assertEqual(self.outcome("--part=kernels"), (1, {"kernels": "skipped"}))

    def test_machine_without_a_gpu_has_its_own_exit_code(self):
        self.program("tools/nvidia-smi", "#!/bin/sh\nexit 9\n")
        if any(name.startswith("nvidia") for name in os.listdir("/dev")):
            self.skipTest("this machine has a GPU")
        code, _, err, _ = self.run_it()
        self.assertEqual(code, 3)
        self.assertIn("no GPU", err)

    def test_wrong_usage_is_named(self):
        for argument in ("--part=nonsense", "--nonsense", "--device=gpu",
                         "--bundle=" + self.folder, "--flights=/nowhere"):
            code, _, err, _ = self.run_it(argument)
            self.assertEqual(code, 2, argument)
            self.assertIn(argument.split("=")[-1], err)
        done = subprocess.run([RUN, "--help"], text=True, capture_output=True, timeout=LIMIT_S,
                              check=True)
        self.assertIn("Exit codes:", done.stdout)


if __name__ == "__main__":
    unittest.main()
