#!/usr/bin/env python3
"""Tests the archive of //deploy/bundle on a machine that has only glibc and a shell.

Usage: bundle_test.py pawl.tar.gz

The machine is a folder with the files of this machine's glibc, dash and the unpacked bundle. Tests
enter it by chroot in private namespaces; they are skipped with a message where the kernel forbids
namespaces.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ARCHIVE = ""
# Far longer than any test takes, so only a hang reaches it.
LIMIT_S = 120
MAX_ARCHIVE_BYTES = 60 * 1000 * 1000

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARIES = "/lib/x86_64-linux-gnu"
GLIBC = ("libc.so.6", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1",
         "libresolv.so.2")
# Folders outside the bundle that a run path may contain: for NVIDIA's and InfiniBand's libraries.
MACHINE_FOLDERS = {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"}
# The machine provides NVIDIA's libraries.
NVIDIA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|nccl)\.so")

# Programs without NVIDIA's libraries.
CPU_PROGRAMS = {"pawl-scheduler", "pawl-server", "pawl-worker", "pawlctl", "training_step"}

# Files in bin/ that need bash, and openssl, which the bare machine lacks.
SCRIPTS = {"make_certificates"}

# Runs in namespaces where this user is root: mounts /proc and /dev, then enters the folder.
ENTER = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'

# Replaces the example's model.
DEEP_MODEL = ("--set=model.deepfm.dim=8", "--set=model.deepfm.hidden=32")


# The path of this test's tools. chroot is in a folder that only root has on its path.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def forbidden():
    """The reason why the kernel forbids private namespaces; empty if it permits them."""
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], text=True,
                          capture_output=True, timeout=LIMIT_S, check=False,
                          env={"PATH": PATH, "LC_ALL": "C"})
    return done.stderr.strip() if done.returncode != 0 else ""


class BundleTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.root = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        for folder in ("bin", "lib64", LIBRARIES[1:], "proc", "dev", "tmp", "opt"):
            os.makedirs(os.path.join(cls.root, folder))
        shutil.copy(os.path.realpath("/bin/dash"), os.path.join(cls.root, "bin/sh"))
        shutil.copy(os.path.realpath(LOADER), cls.root + LOADER)
        for name in GLIBC:
            shutil.copy(os.path.realpath(os.path.join(LIBRARIES, name)),
                        cls.root + LIBRARIES + "/" + name)
        with tarfile.open(ARCHIVE) as archive:
            cls.entries = archive.getmembers()
            archive.extractall(os.path.join(cls.root, "opt"))
        cls.pawl = os.path.join(cls.root, "opt/pawl")
        libraries = os.listdir(os.path.join(cls.pawl, "lib"))
        if any(re.match(r"lib(a|ub|t)san\.so", name) for name in libraries):
            raise unittest.SkipTest("programs built with a sanitizer do not run on other machines")
        cls.why_not = forbidden()
        os.symlink("/opt/pawl/bin/pawlctl", os.path.join(cls.root, "bin/pawlctl"))

    def inside(self, *command, folder="/", environment=(), loader=""):
        """Runs a command on the bare machine: (exit code, stdout, stderr)."""
        if self.why_not:
            self.skipTest("the kernel forbids private namespaces: " + self.why_not)
        # The loader's settings come last, so that they do not affect the shell.
        shell = 'cd %s && export PATH %s && exec "$@"' % (folder, loader)
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ENTER, self.root,
             "/bin/sh", "-c", shell, "sh", *command],
            text=True, capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
            env={"PATH": PATH, **dict(environment)})
        return done.returncode, done.stdout, done.stderr

    def programs(self):
        return sorted(set(os.listdir(os.path.join(self.pawl, "bin"))) - SCRIPTS)

    def elf_files(self):
        for folder in ("bin", "lib", "lib/fallback"):
            for name in sorted(os.listdir(os.path.join(self.pawl, folder))):
                path = os.path.join(self.pawl, folder, name)
                if os.path.isfile(path) and name not in SCRIPTS:
                    yield path

    def loaded(self, path, environment=()):
        """The path of each library that a program loads on the bare machine; None if not found.

        For a library: the libraries of a worker that has opened it.
        """
        loader = "LD_TRACE_LOADED_OBJECTS=1"
        if not path.startswith("/opt/pawl/bin/"):
            loader, path = "%s LD_PRELOAD=%s" % (loader, path), "/opt/pawl/bin/pawl-worker"
        code, out, err = self.inside(LOADER, path, environment=environment, loader=loader)
        self.assertEqual((code, err), (0, ""), "%s: %s" % (path, out))
        found = dict(re.findall(r"^\s*(\S+) => (\S+)", out, re.MULTILINE))
        return {name: None if where == "not" else os.path.normpath(where)
                for name, where in found.items()}

    def lacks_cuda(self, path):
        return any(where is None and NVIDIA.match(name)
                   for name, where in self.loaded(path).items())

    def run_job(self, *arguments, pawlctl="/opt/pawl/bin/pawlctl", folder="/tmp"):
        code, out, err = self.inside(pawlctl, "run", "--job=/opt/pawl/jobs/example.pbtxt",
                                     "--out=/tmp/out", *arguments, folder=folder)
        self.assertEqual((code, err), (0, ""), out)
        with open(os.path.join(self.root, "tmp/out/metrics.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_archive_is_small_and_has_one_folder(self):
        self.assertLess(os.path.getsize(ARCHIVE), MAX_ARCHIVE_BYTES)
        for entry in self.entries:
            self.assertRegex(entry.name, r"^pawl(/|$)")
            self.assertTrue(entry.isfile() or entry.isdir(), entry.name)

    def test_every_program_answers_help_and_version(self):
        self.assertLessEqual(CPU_PROGRAMS, set(self.programs()))
        for name in self.programs():
            path = "/opt/pawl/bin/" + name
            if name not in CPU_PROGRAMS and self.lacks_cuda(path):
                continue
            with self.subTest(program=name):
                code, out, err = self.inside(path, "--help")
                self.assertEqual(code, 0, err)
                self.assertIn(name, out)
                code, out, err = self.inside(path, "--version")
                self.assertEqual(code, 0, err)
                self.assertRegex(out, r"^%s [0-9]+\.[0-9]+\.[0-9]+(-dev)?\n$" % name)

    def test_bundle_has_exactly_the_needed_libraries(self):
        carried = {path[len(self.root):] for path in self.elf_files()}
        programs = {path for path in carried if path.startswith("/opt/pawl/bin/")}
        # Opened by name when a GPU is requested.
        plugins = {path for path in carried if re.search(r"/libpawl_(cuda|nccl)\.so$", path)}
        used = set()
        for path in programs | plugins:
            may_lack_cuda = os.path.basename(path) not in CPU_PROGRAMS
            for library, where in self.loaded(path).items():
                if library in GLIBC or (NVIDIA.match(library) and may_lack_cuda):
                    continue
                self.assertIsNotNone(where, "%s does not find %s" % (path, library))
                self.assertTrue(where.startswith("/opt/pawl/"),
                                "%s takes %s from %s" % (path, library, where))
                used.add(where)
        self.assertEqual(carried - programs - plugins - used, set())

    def test_run_paths_point_into_the_bundle(self):
        for path in self.elf_files():
            shown = subprocess.run(["readelf", "--wide", "--dynamic", path], text=True,
                                   capture_output=True, check=True, timeout=LIMIT_S).stdout
            run_path = re.search(r"\((RPATH|RUNPATH)\)[^\[]*\[([^\]]*)\]", shown)
            if "/bin/" in path[len(self.pawl):]:
                # RUNPATH would not apply to the libraries' own dependencies.
                self.assertTrue(run_path, path)
                self.assertEqual(run_path.group(1), "RPATH", path)
                self.assertIn(run_path.group(2),
                              ("$ORIGIN/../lib", "$ORIGIN/../lib:/usr/local/cuda/lib64"), path)
            elif run_path:
                for folder in run_path.group(2).split(":"):
                    self.assertTrue(
                        re.match(r"\$ORIGIN(/|$)", folder) or folder in MACHINE_FOLDERS,
                        path + ": " + folder)

    def test_library_path_of_the_environment_is_ignored(self):
        mine = os.path.join(self.root, "tmp/mine")
        os.makedirs(mine)
        self.addCleanup(shutil.rmtree, mine)
        for path in self.elf_files():
            if "/lib/" in path[len(self.root):]:
                shutil.copy(path, mine)
        for name in sorted(CPU_PROGRAMS):
            loaded = self.loaded("/opt/pawl/bin/" + name, {"LD_LIBRARY_PATH": "/tmp/mine"})
            self.assertEqual([where for where in loaded.values() if where.startswith("/tmp")], [],
                             name)

    def test_installed_infiniband_library_is_preferred(self):
        name = "libibverbs.so.1"
        self.assertIn("/fallback/", self.loaded("/opt/pawl/bin/pawl-worker")[name])
        folder = os.path.join(self.root, "usr/lib/x86_64-linux-gnu")
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, os.path.join(self.root, "usr"))
        shutil.copy(os.path.join(self.pawl, "lib/fallback", name), folder)
        self.assertEqual(self.loaded("/opt/pawl/bin/pawl-worker")[name],
                         "/usr/lib/x86_64-linux-gnu/" + name)

    def test_example_has_the_documented_digest(self):
        with open(os.path.join(self.pawl, "README"), encoding="utf-8") as file:
            promised = re.search(r'"digest ([0-9a-f]{8})"', file.read()).group(1)
        metrics = self.run_job("--servers=2", "--workers=2")
        self.assertEqual(metrics["digest"], promised)
        self.assertGreater(metrics["eval"]["auc"], 0.92)

    def test_pawlctl_finds_the_daemons_through_a_link(self):
        metrics = self.run_job("--set=epochs=1", pawlctl="pawlctl", folder="/")
        self.assertEqual(metrics["state"], "COMPLETED")
        metrics = self.run_job("--set=epochs=1", pawlctl="../bin/pawlctl", folder="/opt/pawl/lib")
        self.assertEqual(metrics["state"], "COMPLETED")

    def test_matrices_and_collectives_work(self):
        # OpenBLAS selects its kernels by the processor; Gloo finds the machine's address.
        metrics = self.run_job("--workers=2", "--set=dense_path=ALLREDUCE", *DEEP_MODEL)
        self.assertEqual(metrics["state"], "COMPLETED")
        self.assertGreater(metrics["eval"]["auc"], 0.91)

    def test_missing_gpu_is_named(self):
        code, out, err = self.inside("/opt/pawl/bin/pawl-worker", "--device=cuda:0",
                                     "--scheduler=127.0.0.1:1")
        self.assertEqual(code, 2, out + err)
        self.assertRegex(out + err, r"cuda:0|CUDA|libcuda")

    def test_unusable_nccl_is_named(self):
        code, out, err = self.inside("/opt/pawl/bin/pawl-worker", "--collectives=nccl",
                                     "--scheduler=127.0.0.1:1")
        self.assertEqual(code, 2, out + err)
        self.assertIn("--device=cuda:N", out + err)

    def test_gpu_script_finds_its_bundle(self):
        done = subprocess.run(
            [os.path.join(self.pawl, "tests/gpu/run"), "--device=cpu", "--part=train",
             "--set=epochs=1", "--out=" + os.path.join(self.root, "tmp/gpu")],
            text=True, capture_output=True, timeout=LIMIT_S, check=False, env={"PATH": PATH})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("1 passed, 0 failed", done.stdout)

    def test_run_with_tls_makes_certificates(self):
        # On this machine, because the script needs openssl.
        out = os.path.join(self.root, "tmp/tls")
        done = subprocess.run(
            [os.path.join(self.pawl, "bin/pawlctl"), "run", "--tls", "--set=epochs=1",
             "--out=" + out, "--job=" + os.path.join(self.pawl, "jobs/example.pbtxt")],
            text=True, capture_output=True, timeout=LIMIT_S, check=False, env={"PATH": PATH})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertTrue(os.path.exists(os.path.join(out, "tls/operator/cert.pem")))

    def test_run_with_tls_names_what_the_machine_lacks(self):
        code, out, err = self.inside("/opt/pawl/bin/pawlctl", "run", "--tls", "--out=/tmp/no-tls",
                                     "--job=/opt/pawl/jobs/example.pbtxt")
        self.assertEqual(code, 2, out + err)
        self.assertIn("make_certificates", err)

    def test_every_library_has_a_licence(self):
        with open(os.path.join(self.pawl, "MANIFEST"), encoding="utf-8") as file:
            manifest = dict(line.split()[1:3] for line in file)
        for path in self.elf_files():
            name = os.path.relpath(path, self.pawl)
            self.assertTrue(name in manifest, name + " is not in MANIFEST")
            if manifest[name] == "Pawl":
                continue
            license_file = os.path.join(self.pawl, "licenses", manifest[name])
            self.assertTrue(os.path.exists(license_file), license_file)
            with open(license_file, encoding="utf-8", errors="replace") as file:
                text = file.read()
            self.assertIn("opyright", text, name)
            for common in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
                license_file = os.path.join(self.pawl, "licenses/common", common)
                self.assertTrue(os.path.exists(license_file), common)


if __name__ == "__main__":
    ARCHIVE = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
