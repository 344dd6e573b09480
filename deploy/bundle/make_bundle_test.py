#!/usr/bin/env python3
"""Tests of make_bundle.py with small programs that this machine's compiler builds."""

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.realpath(__file__))


def load():
    loader = importlib.machinery.SourceFileLoader(
        "make_bundle", os.path.join(HERE, "make_bundle.py")
    )
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_bundle", loader))
    loader.exec_module(module)
    return module


class MakeBundleTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def compile(self, name, source, *options):
        with open(self.path(name + ".c"), "w", encoding="utf-8") as file:
            file.write(source)
        subprocess.run(
            ["gcc", "-o", self.path(name), self.path(name + ".c"), *options], check=True, timeout=60
        )
        return self.path(name)

    def zlib_program(self):
        return self.compile(
            "zip", "#include <zlib.h>\nint main(void) { return zlibVersion()[0] != '1'; }\n", "-lz"
        )

    def make(self, out, *arguments):
        done = subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "make_bundle.py"),
                "--out=" + self.path(out),
                "--top=top",
                *arguments,
            ],
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    def test_bundle_has_libraries_and_licences(self):
        self.assertEqual(self.make("a.tar.gz", "--program=" + self.zlib_program()), (0, ""))
        with tarfile.open(self.path("a.tar.gz")) as archive:
            names = archive.getnames()
            archive.extractall(self.folder)
        for name in ("top/bin/zip", "top/lib/libz.so.1", "top/licenses/zlib1g", "top/MANIFEST"):
            self.assertIn(name, names)
        self.assertFalse([name for name in names if "libc.so" in name])
        shown = subprocess.run(
            ["ldd", self.path("top/bin/zip")],
            text=True,
            capture_output=True,
            check=True,
            timeout=60,
            env=dict(os.environ, LD_LIBRARY_PATH="/usr/lib/x86_64-linux-gnu"),
        ).stdout
        self.assertIn(self.path("top/bin/../lib/libz.so.1"), shown)
        self.assertEqual(
            subprocess.run([self.path("top/bin/zip")], check=False, timeout=60).returncode, 0
        )

    def test_same_inputs_give_same_bytes(self):
        program = self.zlib_program()
        script = self.path("script")
        with open(script, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n")
        archives = []
        for number in range(2):
            os.utime(program, (1000 * number, 1000 * number))
            os.chmod(script, 0o600 + number * 0o111)
            self.assertEqual(
                self.make(str(number), "--program=" + program, "--file=script=" + script), (0, "")
            )
            with open(self.path(str(number)), "rb") as file:
                archives.append(file.read())
        self.assertEqual(archives[0], archives[1])
        with tarfile.open(self.path("0")) as archive:
            entries = archive.getmembers()
        self.assertEqual(
            {(entry.mtime, entry.uid, entry.gid, entry.uname) for entry in entries},
            {(load().TIME_STAMP, 0, 0, "")},
        )
        self.assertEqual({oct(entry.mode) for entry in entries}, {"0o755", "0o644"})

    def test_libraries_of_the_machine_are_left_out(self):
        module = load()
        for name in (
            "libc.so.6",
            "libm.so.6",
            "ld-linux-x86-64.so.2",
            "libresolv.so.2",
            "libnss_files.so.2",
        ):
            self.assertTrue(module.GLIBC.match(name), name)
        for name in (
            "libcuda.so.1",
            "libcudart.so.13",
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libnccl.so.2",
            "libnvidia-ml.so.1",
        ):
            self.assertTrue(module.NVIDIA.match(name), name)
        for name in (
            "libcurl.so.4",
            "libcares.so.2",
            "libpawl_cuda.so",
            "libmd.so.0",
            "libcrypto.so.3",
            "libstdc++.so.6",
        ):
            self.assertFalse(module.GLIBC.match(name) or module.NVIDIA.match(name), name)

    def test_plugin_finds_libraries_and_cuda(self):
        plugin = self.compile(
            "libplugin.so",
            "#include <zlib.h>\nconst char* Version(void) { return zlibVersion(); }\n",
            "-shared",
            "-fPIC",
            "-lz",
            "-Wl,-rpath,/somewhere/here",
        )
        self.assertEqual(self.make("a.tar.gz", "--plugin=" + plugin), (0, ""))
        with tarfile.open(self.path("a.tar.gz")) as archive:
            archive.extractall(self.folder)
        shown = subprocess.run(
            ["readelf", "-d", self.path("top/lib/libplugin.so")],
            text=True,
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        self.assertIn("[$ORIGIN:/usr/local/cuda/lib64]", shown)
        self.assertNotIn("/somewhere", shown)
        self.assertTrue(os.path.exists(self.path("top/lib/libz.so.1")))

    def test_environment_does_not_add_libraries(self):
        # Not zlib, which make_bundle.py itself loads.
        source = "#include <xxhash.h>\nint main(void) { return XXH64(\"\", 0, 0) == 1; }\n"
        program = self.compile("hash", source, "-lxxhash")
        os.mkdir(self.path("mine"))
        self.compile("mine/libxxhash.so.0", "int XXH64(void) { return 1; }\n", "-shared", "-fPIC")
        os.environ["LD_LIBRARY_PATH"] = self.path("mine")
        self.addCleanup(os.environ.pop, "LD_LIBRARY_PATH")
        # A library without a package would be refused.
        self.assertEqual(self.make("a.tar.gz", "--program=" + program), (0, ""))

    def test_missing_library_is_named(self):
        self.compile("libgone.so", "int Gone(void) { return 1; }\n", "-shared", "-fPIC")
        program = self.compile(
            "needy",
            "int Gone(void);\nint main(void) { return Gone(); }\n",
            "-L" + self.folder,
            "-lgone",
        )
        os.remove(self.path("libgone.so"))
        code, error = self.make("a.tar.gz", "--program=" + program)
        self.assertEqual(code, 1)
        self.assertIn("libgone.so", error)

    def test_library_without_package_is_refused(self):
        self.compile("libown.so", "int Own(void) { return 1; }\n", "-shared", "-fPIC")
        program = self.compile(
            "owner",
            "int Own(void);\nint main(void) { return Own(); }\n",
            "-L" + self.folder,
            "-lown",
            "-Wl,-rpath," + self.folder,
        )
        code, error = self.make("a.tar.gz", "--program=" + program)
        self.assertEqual(code, 1)
        self.assertIn("libown.so", error)

    def test_later_glibc_and_private_symbols_are_refused(self):
        module = load()
        module.check_glibc("good", b"\0GLIBC_2.2.5\0GLIBC_2.36\0")
        for bad in (b"\0GLIBC_2.2.5\0GLIBC_2.37\0", b"\0GLIBC_3.0\0", b"\0GLIBC_PRIVATE\0"):
            with self.assertRaises(module.Misfit):
                module.check_glibc("bad", bad)


if __name__ == "__main__":
    unittest.main()
