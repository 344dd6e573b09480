#!/usr/bin/env python3
"""Puts programs, the shared libraries that they need, and files into one archive that runs wherever it is unpacked.

Usage: make_bundle.py --out=FILE.tar.gz --top=NAME --program=PATH... [--plugin=PATH...] [--compiled_in=PACKAGE...]
                      [--file=DEST=PATH...] [--license=NAME=PATH...]
  --top          the folder that the archive unpacks to
  --program      goes to bin/, stripped
  --plugin       a shared library that a program loads by its name when asked to; goes to lib/, stripped
  --compiled_in  a Debian package whose code is in the programs without being a library beside them (headers)
  --file         copied as it is; executable if it begins with "#!"
  --license      a licence text of something that is no Debian package

How a program finds its libraries wherever it lies. Each gets the DT_RPATH $ORIGIN/../lib. Not DT_RUNPATH, which is good
for a program's direct needs alone: Debian's libraries need each other and have no run-path, so all of them would have to
be changed; the DT_RPATH of the program counts for whatever is loaded on its behalf, a plugin loaded by its name too,
and Debian's files stay byte by byte what Debian signed. And not LD_LIBRARY_PATH, which it comes before: what a cluster's
environment modules put there (another protobuf, another OpenBLAS) must not get in.

What is not carried is the machine's to have: glibc, whose loader and kernel interface must fit each other; NVIDIA's
driver, which must fit the kernel's; CUDA's libraries, whose licence and size (gigabytes) speak against it. What needs
CUDA looks for it where NVIDIA's installers put it, where LD_LIBRARY_PATH says and where ldconfig knows it.

FALLBACK: a library that loads parts of the machine by their path, which must be of its own version. libibverbs is one:
with ours in the process NCCL, which opens it by its name, could not use the machine's InfiniBand. Ours is in
lib/fallback, where only the library that needs it (Gloo, which we use over TCP) looks, and after the machine's folders.

The same inputs give the same bytes: names sorted, one time stamp, owner 0, modes 755 and 644.
Exit codes: 0 done, 1 something is missing or does not fit (it is named), 2 wrong usage.
"""

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# The oldest glibc that a bundle runs on: Debian 12's.
MAX_GLIBC = (2, 36)
GLIBC = re.compile(r"^(ld-linux-x86-64\.so\.2|linux-vdso\.so\.1|"
                   r"lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|BrokenLocale|thread_db|nss_\w+|nsl)\.so\.[0-9]+)$")
# NVIDIA's: the driver's (libcuda, libnvidia-*) and CUDA's.
NVIDIA = re.compile(r"^lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc|nvrtc-builtins|nvJitLink|curand|cusparse|cupti|"
                    r"nvidia-[\w-]+)\.so(\.[0-9]+)*$")
FALLBACK = ("libibverbs.so.1",)

CUDA_FOLDER = "/usr/local/cuda/lib64"
PROGRAM_PATH = "$ORIGIN/../lib"
PLUGIN_PATH = "$ORIGIN:" + CUDA_FOLDER
FALLBACK_PATH = "$ORIGIN:/usr/lib/x86_64-linux-gnu:/usr/lib64:$ORIGIN/fallback"

# 2020-01-01: tar warns of what is older than its maker, and of 1970.
TIME_STAMP = 1577836800
COMMON_LICENSES = "/usr/share/common-licenses"


class Misfit(Exception):
    """What keeps the bundle from being made, in words for the person who makes it."""


def run(*command):
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=300)
    except FileNotFoundError as error:
        raise Misfit("%s is not installed; deploy/install_packages brings it" % command[0]) from error
    if done.returncode != 0:
        raise Misfit("%s: %s" % (" ".join(command), (done.stderr or done.stdout).strip()))
    return done.stdout


def needs(path):
    """The names of the libraries that the file names itself."""
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", run("readelf", "--wide", "--dynamic", path))


def libraries(path):
    """All libraries that the loader of this machine takes for the file: {name: where it lies}."""
    found = {}
    for line in run("ldd", path).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)( \(0x[0-9a-f]+\))?$", line.replace("not found", "not-found"))
        if not match:
            continue
        name, where = match.group(1), match.group(2)
        if GLIBC.match(name) or NVIDIA.match(name):
            continue
        if where == "not-found":
            raise Misfit("%s needs %s, which this machine does not have" % (path, name))
        found[name] = os.path.realpath(where)
    return found


def owner(path):
    """The Debian package that brought a file: (package, version, source package, its version)."""
    # Since /lib is a link to /usr/lib, a package may know its file by either name.
    for name in (path, path[len("/usr"):] if path.startswith("/usr/") else "/usr" + path):
        done = subprocess.run(["dpkg-query", "--search", name], text=True, capture_output=True, check=False, timeout=60)
        if done.returncode == 0:
            return package_versions(done.stdout.splitlines()[0].split(": ")[0])
    raise Misfit("%s is of no Debian package, so there is no licence text to carry with it" % path)


def package_versions(package):
    shown = run("dpkg-query", "--show", "--showformat=${Package} ${Version} ${source:Package} ${source:Version}\\n",
                package)
    return tuple(shown.splitlines()[0].split())


def check_glibc(path, data):
    """No file may need a later glibc, nor the inside of one."""
    for match in re.finditer(rb"\0GLIBC_([0-9]+)\.([0-9]+)(?:\.[0-9]+)?(?=\0)", data):
        version = (int(match.group(1)), int(match.group(2)))
        if version > MAX_GLIBC:
            raise Misfit("%s needs glibc %d.%d, and a bundle is for %d.%d: build it on Debian 12" %
                         ((path,) + version + MAX_GLIBC))
    if re.search(rb"\0GLIBC_PRIVATE\0", data):
        raise Misfit("%s uses what glibc keeps to itself, so it fits no other one" % path)


class Bundle:
    def __init__(self, scratch):
        self.scratch = scratch
        # By their path in the archive: (content, whether it can be executed).
        self.files = {}
        # By the same path: what it is, for the manifest.
        self.origins = {}
        self.packages = {}

    def add(self, name, data, executable=False, origin=""):
        if name in self.files:
            raise Misfit("two files are to be %s" % name)
        self.files[name] = (data, executable)
        if origin:
            self.origins[name] = origin

    def relocated(self, path, run_path, options=()):
        """The file's bytes with that run-path in place of any other. Stripped before: strip spoils what patchelf made."""
        copy = os.path.join(self.scratch, os.path.basename(path))
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o755)
        run("strip", "--strip-unneeded", copy)
        run("patchelf", *options, "--set-rpath", run_path, copy)
        with open(copy, "rb") as file:
            return file.read()

    def add_program(self, path):
        uses_cuda = any(NVIDIA.match(need) for need in needs(path))
        data = self.relocated(path, PROGRAM_PATH + (":" + CUDA_FOLDER if uses_cuda else ""), ("--force-rpath",))
        check_glibc(path, data)
        self.add("bin/" + os.path.basename(path), data, True, "Pawl")
        self.add_libraries(path)

    def add_plugin(self, path):
        # DT_RUNPATH here, so that LD_LIBRARY_PATH can name CUDA. Whatever else it needs the program has already.
        data = self.relocated(path, PLUGIN_PATH)
        check_glibc(path, data)
        self.add("lib/" + os.path.basename(path), data, False, "Pawl")
        self.add_libraries(path)

    def add_libraries(self, path):
        for name, where in libraries(path).items():
            carried = ("lib/fallback/" if name in FALLBACK else "lib/") + name
            if carried in self.files:
                continue
            changed = any(need in FALLBACK for need in needs(where))
            if changed:
                data = self.relocated(where, FALLBACK_PATH, ("--force-rpath",))
            else:
                with open(where, "rb") as file:
                    data = file.read()
                if re.search(r"\((RPATH|RUNPATH)\)", run("readelf", "--wide", "--dynamic", where)):
                    raise Misfit("%s has a run-path of its own, which would lead to this machine's folders" % where)
            check_glibc(where, data)
            package = owner(where)
            self.packages[package[0]] = package
            self.add(carried, data, False, "%s %s%s" % (package[0], package[1], ", run-path changed" if changed else ""))

    def add_compiled_in(self, name):
        package = package_versions(name)
        self.packages[package[0]] = package

    def add_licenses(self):
        """Of each package, and the texts that these refer to and that only Debian has."""
        common = set()
        for name, (_, version, source, source_version) in sorted(self.packages.items()):
            path = "/usr/share/doc/%s/copyright" % name
            try:
                with open(path, "rb") as file:
                    text = file.read()
            except OSError as error:
                raise Misfit("the licence of %s: %s" % (name, error)) from error
            common.update(re.findall(rb"/usr/share/common-licenses/([\w.+-]*\w)", text))
            head = "%s %s, made from Debian's source package %s %s\n(https://snapshot.debian.org/package/%s/%s/)\n\n" % (
                name, version, source, source_version, source, source_version)
            self.add("licenses/" + name, head.encode() + text)
        for name in sorted(name.decode() for name in common):
            with open(os.path.join(COMMON_LICENSES, name), "rb") as file:
                self.add("licenses/common/" + name, file.read())

    def manifest(self):
        lines = ["%10d  %-44s %s\n" % (len(self.files[name][0]), name, origin)
                 for name, origin in sorted(self.origins.items())]
        return "".join(lines).encode()

    def write(self, out, top):
        folders = {""}
        for name in self.files:
            parts = name.split("/")
            folders.update("/".join(parts[:i]) for i in range(1, len(parts)))
        entries = sorted([(name, None, True) for name in folders] +
                         [(name, data, executable) for name, (data, executable) in self.files.items()],
                         key=lambda entry: entry[0].split("/"))
        with open(out, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed, \
                tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, data, executable in entries:
                entry = tarfile.TarInfo("/".join(part for part in (top, name) if part))
                entry.mtime = TIME_STAMP
                entry.mode = 0o755 if executable else 0o644
                if data is None:
                    entry.type = tarfile.DIRTYPE
                    archive.addfile(entry)
                else:
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))


def split_pair(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError("'%s' is not NAME=PATH" % text)
    return name, path


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--top", required=True)
    parser.add_argument("--program", action="append", default=[])
    parser.add_argument("--plugin", action="append", default=[])
    parser.add_argument("--compiled_in", action="append", default=[])
    parser.add_argument("--file", action="append", default=[], type=split_pair)
    parser.add_argument("--license", action="append", default=[], type=split_pair)
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    # What is set for a build must not say which libraries are found.
    os.environ.pop("LD_LIBRARY_PATH", None)
    os.environ["LC_ALL"] = "C"
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bundle = Bundle(scratch)
            for path in options.program:
                bundle.add_program(path)
            for path in options.plugin:
                bundle.add_plugin(path)
            for name, path in options.file:
                with open(path, "rb") as file:
                    data = file.read()
                bundle.add(name, data, data.startswith(b"#!"))
            for name in options.compiled_in:
                bundle.add_compiled_in(name)
            bundle.add_licenses()
            for name, path in options.license:
                with open(path, "rb") as file:
                    bundle.add("licenses/" + name, file.read())
            bundle.add("MANIFEST", bundle.manifest())
            bundle.write(options.out, options.top)
    except Misfit as misfit:
        print("make_bundle: %s" % misfit, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
