#!/usr/bin/env python3
"""The archive of //deploy:bundle on a machine that has nothing but glibc and a shell.

Usage: bundle_test.py pawl.tar.gz

The machine is a folder with the few files of this machine's own glibc, dash and the unpacked bundle, entered by chroot in
namespaces of its own. Where the kernel forbids these, what needs them is skipped, saying so.
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
# Far beyond what anything here takes: only what hangs reaches it.
LIMIT_S = 120
MAX_ARCHIVE_BYTES = 60 * 1000 * 1000

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARIES = "/lib/x86_64-linux-gnu"
GLIBC = ("libc.so.6", "libm.so.6", "libmvec.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2")
# Where a run-path may lead besides the bundle: what the machine may have of NVIDIA's and of InfiniBand's.
MACHINE_FOLDERS = {"/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"}
# NVIDIA's libraries are the machine's to have.
NVIDIA = re.compile(r"lib(cuda|cudart|cublas|cublasLt|nccl)\.so")

# These need nothing of NVIDIA's.
CPU_PROGRAMS = {"pawl-scheduler", "pawl-server", "pawl-worker", "pawlctl", "training_step"}

# In namespaces where this user is root: /proc and /dev of this machine, and then only the folder.
ENTER = 'mount --rbind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'

# In place of the example's model.
DEEP_MODEL = ("--set=model.deepfm.dim=8", "--set=model.deepfm.hidden=32")


# Of the tools that this test uses; chroot lies where only root's shells look.
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def forbidden():
    """Why the kernel allows no namespaces of one's own; empty if it does. Whatever else is missing is a failure."""
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], text=True, capture_output=True,
                          timeout=LIMIT_S, check=False, env={"PATH": PATH, "LC_ALL": "C"})
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
            shutil.copy(os.path.realpath(os.path.join(LIBRARIES, name)), cls.root + LIBRARIES + "/" + name)
        with tarfile.open(ARCHIVE) as archive:
            cls.entries = archive.getmembers()
            archive.extractall(os.path.join(cls.root, "opt"))
        cls.pawl = os.path.join(cls.root, "opt/pawl")
        if any(re.match(r"lib(a|ub|t)san\.so", name) for name in os.listdir(os.path.join(cls.pawl, "lib"))):
            raise unittest.SkipTest("programs built with a sanitizer are not for other machines")
        cls.why_not = forbidden()
        os.symlink("/opt/pawl/bin/pawlctl", os.path.join(cls.root, "bin/pawlctl"))

    def inside(self, *command, folder="/", environment=(), loader=""):
        """Runs a command on the bare machine: (exit code, stdout, stderr)."""
        if self.why_not:
            self.skipTest("the kernel allows no namespaces of one's own: " + self.why_not)
        # What the loader is told comes last: the shell itself is not to be traced.
        shell = 'cd %s && export PATH %s && exec "$@"' % (folder, loader)
        done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ENTER, self.root,
                               "/bin/sh", "-c", shell, "sh", *command], text=True, capture_output=True, timeout=LIMIT_S,
                              check=False, stdin=subprocess.DEVNULL, env={"PATH": PATH, **dict(environment)})
        return done.returncode, done.stdout, done.stderr

    def programs(self):
        return sorted(os.listdir(os.path.join(self.pawl, "bin")))

    def elf_files(self):
        for folder in ("bin", "lib", "lib/fallback"):
            for name in sorted(os.listdir(os.path.join(self.pawl, folder))):
                path = os.path.join(self.pawl, folder, name)
                if os.path.isfile(path):
                    yield path

    def loaded(self, path, environment=()):
        """Where the bare machine's loader finds what a program needs, by name; None for what it does not find.

        Of a library: what the worker needs once it has opened it.
        """
        loader = "LD_TRACE_LOADED_OBJECTS=1"
        if not path.startswith("/opt/pawl/bin/"):
            loader, path = "%s LD_PRELOAD=%s" % (loader, path), "/opt/pawl/bin/pawl-worker"
        code, out, err = self.inside(LOADER, path, environment=environment, loader=loader)
        self.assertEqual((code, err), (0, ""), "%s: %s" % (path, out))
        found = dict(re.findall(r"^\s*(\S+) => (\S+)", out, re.MULTILINE))
        return {name: None if where == "not" else os.path.normpath(where) for name, where in found.items()}

    def lacks_cuda(self, path):
        return any(where is None and NVIDIA.match(name) for name, where in self.loaded(path).items())

    def run_job(self, *arguments, pawlctl="/opt/pawl/bin/pawlctl", folder="/tmp"):
        code, out, err = self.inside(pawlctl, "run", "--job=/opt/pawl/jobs/example.pbtxt", "--out=/tmp/out", *arguments,
                                     folder=folder)
        self.assertEqual((code, err), (0, ""), out)
        with open(os.path.join(self.root, "tmp/out/metrics.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_the_archive_is_small_and_unpacks_into_one_folder(self):
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
                self.assertRegex(out, r"^%s [0-9]+\.[0-9]+\.[0-9]+\n$" % name)

    def test_every_library_is_in_the_bundle_and_every_one_in_it_is_used(self):
        carried = {path[len(self.root):] for path in self.elf_files()}
        programs = {path for path in carried if path.startswith("/opt/pawl/bin/")}
        # Opened by its name when a GPU is asked for.
        plugins = {path for path in carried if re.search(r"/libpawl_(cuda|nccl)\.so$", path)}
        used = set()
        for path in programs | plugins:
            may_lack_cuda = os.path.basename(path) not in CPU_PROGRAMS
            for library, where in self.loaded(path).items():
                if library in GLIBC or (NVIDIA.match(library) and may_lack_cuda):
                    continue
                self.assertIsNotNone(where, "%s does not find %s" % (path, library))
                self.assertTrue(where.startswith("/opt/pawl/"), "%s takes %s from %s" % (path, library, where))
                used.add(where)
        self.assertEqual(carried - programs - plugins - used, set())

    def test_run_paths_lead_to_the_bundle_and_not_to_the_machine_that_built_it(self):
        for path in self.elf_files():
            shown = subprocess.run(["readelf", "--wide", "--dynamic", path], text=True, capture_output=True, check=True,
                                   timeout=LIMIT_S).stdout
            run_path = re.search(r"\((RPATH|RUNPATH)\)[^\[]*\[([^\]]*)\]", shown)
            if "/bin/" in path[len(self.pawl):]:
                # RUNPATH would not count for what the libraries need.
                self.assertTrue(run_path, path)
                self.assertEqual(run_path.group(1), "RPATH", path)
                self.assertIn(run_path.group(2), ("$ORIGIN/../lib", "$ORIGIN/../lib:/usr/local/cuda/lib64"), path)
            elif run_path:
                for folder in run_path.group(2).split(":"):
                    self.assertTrue(re.match(r"\$ORIGIN(/|$)", folder) or folder in MACHINE_FOLDERS, path + ": " + folder)

    def test_what_the_environment_names_does_not_get_in(self):
        mine = os.path.join(self.root, "tmp/mine")
        os.makedirs(mine)
        self.addCleanup(shutil.rmtree, mine)
        for path in self.elf_files():
            if "/lib/" in path[len(self.root):]:
                shutil.copy(path, mine)
        for name in sorted(CPU_PROGRAMS):
            loaded = self.loaded("/opt/pawl/bin/" + name, {"LD_LIBRARY_PATH": "/tmp/mine"})
            self.assertEqual([where for where in loaded.values() if where.startswith("/tmp")], [], name)

    def test_the_machines_own_infiniband_library_comes_first(self):
        name = "libibverbs.so.1"
        self.assertIn("/fallback/", self.loaded("/opt/pawl/bin/pawl-worker")[name])
        folder = os.path.join(self.root, "usr/lib/x86_64-linux-gnu")
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, os.path.join(self.root, "usr"))
        shutil.copy(os.path.join(self.pawl, "lib/fallback", name), folder)
        self.assertEqual(self.loaded("/opt/pawl/bin/pawl-worker")[name], "/usr/lib/x86_64-linux-gnu/" + name)

    def test_the_example_ends_with_the_digest_that_the_readme_promises(self):
        with open(os.path.join(self.pawl, "README"), encoding="utf-8") as file:
            promised = re.search(r'"digest ([0-9a-f]{8})"', file.read()).group(1)
        metrics = self.run_job("--servers=2", "--workers=2")
        self.assertEqual(metrics["digest"], promised)
        self.assertGreater(metrics["eval"]["auc"], 0.92)

    def test_pawlctl_finds_the_daemons_by_a_link_and_from_any_folder(self):
        self.assertEqual(self.run_job("--set=epochs=1", pawlctl="pawlctl", folder="/")["state"], "COMPLETED")
        metrics = self.run_job("--set=epochs=1", pawlctl="../bin/pawlctl", folder="/opt/pawl/lib")
        self.assertEqual(metrics["state"], "COMPLETED")

    def test_matrices_and_collectives_work(self):
        # OpenBLAS picks its kernels by the processor, Gloo finds the machine's address.
        metrics = self.run_job("--workers=2", "--set=dense_path=ALLREDUCE", *DEEP_MODEL)
        self.assertEqual(metrics["state"], "COMPLETED")
        self.assertGreater(metrics["eval"]["auc"], 0.91)

    def test_a_gpu_that_is_not_there_is_named(self):
        code, out, err = self.inside("/opt/pawl/bin/pawl-worker", "--device=cuda:0", "--scheduler=127.0.0.1:1")
        self.assertEqual(code, 2, out + err)
        self.assertRegex(out + err, r"cuda:0|CUDA|libcuda")

    def test_nccl_that_cannot_be_used_is_named(self):
        code, out, err = self.inside("/opt/pawl/bin/pawl-worker", "--collectives=nccl", "--scheduler=127.0.0.1:1")
        self.assertEqual(code, 2, out + err)
        self.assertIn("--device=cuda:N", out + err)

    def test_the_script_for_gpus_finds_the_bundle_that_it_lies_in(self):
        done = subprocess.run([os.path.join(self.pawl, "tests/gpu/run"), "--device=cpu", "--part=train", "--set=epochs=1",
                               "--out=" + os.path.join(self.root, "tmp/gpu")], text=True, capture_output=True,
                              timeout=LIMIT_S, check=False, env={"PATH": PATH})
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("1 passed, 0 failed", done.stdout)

    def test_every_library_has_its_licence(self):
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
                self.assertTrue(os.path.exists(os.path.join(self.pawl, "licenses/common", common)), common)


if __name__ == "__main__":
    ARCHIVE = os.path.realpath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
