#!/usr/bin/env python3
"""Packs programs, their shared libraries and files into an archive that runs anywhere.

Usage: make_bundle.py --out=FILE.tar.gz --top=NAME --program=PATH... [--plugin=PATH...]
                      [--compiled_in=PACKAGE...] [--file=DEST=PATH...] [--license=NAME=PATH...]
  --top          the folder that the archive unpacks to
  --program      goes to bin/, stripped
  --plugin       a shared library that a program loads by name on request; goes to lib/, stripped
  --compiled_in  a Debian package whose headers are compiled into the programs
  --file         copied unchanged; executable if it starts with "#!"
  --license      the licence text of something that is not a Debian package

Each program gets the DT_RPATH $ORIGIN/../lib, so it finds its libraries wherever it is. DT_RUNPATH
would only apply to the program's direct dependencies: Debian's libraries depend on each other and
have no run-path, so all of them would have to be changed. The program's DT_RPATH applies to
everything that is loaded for it, including plugins, and Debian's files stay unchanged. DT_RPATH
also precedes LD_LIBRARY_PATH, in which a cluster's environment modules may put another protobuf or
OpenBLAS.

The machine must provide glibc, whose loader must match its C library; NVIDIA's driver, which must
match the kernel's; and CUDA's libraries, because of their licence and size (gigabytes). Programs
look for CUDA where NVIDIA's installers put it, in LD_LIBRARY_PATH, and in ldconfig's cache.

FALLBACK lists libraries that load other files of the machine by path, which must have their
version. libibverbs is one: with ours in the process NCCL, which opens it by name, could not use the
machine's InfiniBand. Ours is in lib/fallback. Only the library that needs it looks there (Gloo,
which we use over TCP), and only after the machine's folders.

The same inputs give the same bytes: names are sorted, with one time stamp, owner 0, modes 755 and
644. Exit codes: 0: done; 1: something is missing or does not fit (the message names it); 2: wrong
usage."""

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

# The oldest glibc on which a bundle runs: Debian 12's.
MAX_GLIBC = (2, 36)
GLIBC = re.compile(
    r"^(ld-linux-x86-64\.so\.2|linux-vdso\.so\.1|"
    r"lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|BrokenLocale|thread_db|nss_\w+|nsl)\.so\.[0-9]+)$"
)
# Libraries of NVIDIA's driver (libcuda, libnvidia-*) and of CUDA.
NVIDIA = re.compile(
    r"^lib(cuda|cudart|cublas|cublasLt|nccl|nvrtc|nvrtc-builtins|nvJitLink|curand|cusparse|cupti|"
    r"nvidia-[\w-]+)\.so(\.[0-9]+)*$"
)
FALLBACK = ("libibverbs.so.1",)

CUDA_FOLDER = "/usr/local/cuda/lib64"
PROGRAM_PATH = "$ORIGIN/../lib"
PLUGIN_PATH = "$ORIGIN:" + CUDA_FOLDER
FALLBACK_PATH = "$ORIGIN:/usr/lib/x86_64-linux-gnu:/usr/lib64:$ORIGIN/fallback"

# 2020-01-01: tar warns about implausibly old time stamps, such as 1970.
TIME_STAMP = 1577836800
COMMON_LICENSES = "/usr/share/common-licenses"


class Misfit(Exception):
    """The reason why the bundle cannot be made, for its user."""


def run(*command):
    try:
        done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=300)
    except FileNotFoundError as error:
        raise Misfit(
            "%s is not installed; deploy/install_packages installs it" % command[0]
        ) from error
    if done.returncode != 0:
        raise Misfit("%s: %s" % (" ".join(command), (done.stderr or done.stdout).strip()))
    return done.stdout


def needs(path):
    """Returns the names of the file's direct dependencies."""
    return re.findall(
        r"\(NEEDED\)\s+Shared library: \[([^\]]+)\]", run("readelf", "--wide", "--dynamic", path)
    )


def libraries(path):
    """Returns all libraries that this machine's loader uses for the file: {name: path}."""
    found = {}
    for line in run("ldd", path).splitlines():
        match = re.match(
            r"\s*(\S+) => (\S+)( \(0x[0-9a-f]+\))?$", line.replace("not found", "not-found")
        )
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
    """Returns a file's Debian package: (package, version, source package, its version)."""
    # /lib is a link to /usr/lib: a package may list its file under either name.
    for name in (path, path[len("/usr") :] if path.startswith("/usr/") else "/usr" + path):
        done = subprocess.run(
            ["dpkg-query", "--search", name],
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        if done.returncode == 0:
            return package_versions(done.stdout.splitlines()[0].split(": ")[0])
    raise Misfit("%s belongs to no Debian package, so its licence is unknown" % path)


def package_versions(package):
    shown = run(
        "dpkg-query",
        "--show",
        "--showformat=${Package} ${Version} ${source:Package} ${source:Version}\\n",
        package,
    )
    return tuple(shown.splitlines()[0].split())


def check_glibc(path, data):
    """Raises Misfit if a file needs a later glibc, or private symbols of glibc."""
    for match in re.finditer(rb"\0GLIBC_([0-9]+)\.([0-9]+)(?:\.[0-9]+)?(?=\0)", data):
        version = (int(match.group(1)), int(match.group(2)))
        if version > MAX_GLIBC:
            raise Misfit(
                "%s needs glibc %d.%d, and a bundle is for %d.%d: build it on Debian 12"
                % ((path,) + version + MAX_GLIBC)
            )
    if re.search(rb"\0GLIBC_PRIVATE\0", data):
        raise Misfit("%s uses private symbols of glibc, so it fits no other version" % path)


class Bundle:
    def __init__(self, scratch):
        self.scratch = scratch
        # By path in the archive: (content, whether it is executable).
        self.files = {}
        # By path in the archive: the origin, for the manifest.
        self.origins = {}
        self.packages = {}

    def add(self, name, data, executable=False, origin=""):
        if name in self.files:
            raise Misfit("two files have the path %s" % name)
        self.files[name] = (data, executable)
        if origin:
            self.origins[name] = origin

    def relocated(self, path, run_path, options=(), steps=()):
        """Returns the stripped file with another run-path, after further changes by patchelf.

        strip damages patchelf's output, and patchelf 0.14 its own when it makes several changes.
        """
        copy = os.path.join(self.scratch, os.path.basename(path))
        shutil.copyfile(path, copy)
        os.chmod(copy, 0o755)
        run("strip", "--strip-unneeded", copy)
        for step in steps:
            run("patchelf", *step, copy)
        run("patchelf", *options, "--set-rpath", run_path, copy)
        with open(copy, "rb") as file:
            return file.read()

    def add_program(self, path):
        uses_cuda = any(NVIDIA.match(need) for need in needs(path))
        data = self.relocated(
            path, PROGRAM_PATH + (":" + CUDA_FOLDER if uses_cuda else ""), ("--force-rpath",)
        )
        check_glibc(path, data)
        self.add("bin/" + os.path.basename(path), data, True, "Pawl")
        self.add_libraries(path)

    def add_plugin(self, path):
        # DT_RUNPATH, so that LD_LIBRARY_PATH can point to CUDA. The program has loaded all other
        # libraries.
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
                    raise Misfit(
                        "%s has its own run-path, which would lead to this machine's folders"
                        % where
                    )
            check_glibc(where, data)
            package = owner(where)
            self.packages[package[0]] = package
            self.add(
                carried,
                data,
                False,
                "%s %s%s" % (package[0], package[1], ", run-path changed" if changed else ""),
            )

    def add_compiled_in(self, name):
        package = package_versions(name)
        self.packages[package[0]] = package

    def add_licenses(self):
        """Adds the licence of each package, and the common licences that these refer to."""
        common = set()
        for name, (_, version, source, source_version) in sorted(self.packages.items()):
            path = "/usr/share/doc/%s/copyright" % name
            try:
                with open(path, "rb") as file:
                    text = file.read()
            except OSError as error:
                raise Misfit("the licence of %s: %s" % (name, error)) from error
            common.update(re.findall(rb"/usr/share/common-licenses/([\w.+-]*\w)", text))
            head = (
                "%s %s, made from Debian's source package %s %s\n"
                "(https://snapshot.debian.org/package/%s/%s/)\n\n"
                % (name, version, source, source_version, source, source_version)
            )
            self.add("licenses/" + name, head.encode() + text)
        for name in sorted(name.decode() for name in common):
            with open(os.path.join(COMMON_LICENSES, name), "rb") as file:
                self.add("licenses/common/" + name, file.read())

    def manifest(self):
        lines = [
            "%10d  %-44s %s\n" % (len(self.files[name][0]), name, origin)
            for name, origin in sorted(self.origins.items())
        ]
        return "".join(lines).encode()

    def write(self, out, top):
        folders = {""}
        for name in self.files:
            parts = name.split("/")
            folders.update("/".join(parts[:i]) for i in range(1, len(parts)))
        entries = sorted(
            [(name, None, True) for name in folders]
            + [(name, data, executable) for name, (data, executable) in self.files.items()],
            key=lambda entry: entry[0].split("/"),
        )
        with open(out, "wb") as raw, gzip.GzipFile(
            "", "wb", 9, raw, mtime=0
        ) as packed, tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
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
    # The build's environment must not influence which libraries are found.
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
