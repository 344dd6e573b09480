#!/usr/bin/env python3
"""Makes the wheel of the Python package: its sources, libpawl.so, the daemons and their libraries.

Usage: make_wheel.py --out=FILE.whl --version=VERSION --library=PATH... --program=PATH...
                     --package=PATH... [--compiled_in=PACKAGE...] [--file=DEST=PATH...]
  --library      goes to pawl/lib/, stripped
  --program      goes to pawl/bin/, stripped
  --package      a file of the package; its path contains the folder pawl/
  --compiled_in  a Debian package whose headers are compiled in
  --file         copied unchanged into pawl/; executable if it starts with "#!"

The wheel works with every Python 3 (py3-none), because it is used through ctypes. The library
shares a process with others, such as torch's, that may bring another protobuf or gRPC. If a library
with the same soname is loaded already, the loader reuses it, so every carried library gets a soname
of its own, with a digest of its content, as auditwheel does.

The machine must provide glibc and, as for every manylinux wheel, libstdc++ and libgcc_s. TAG names
the oldest versions allowed; if a file needs a newer one, no wheel is written. The same inputs give
the same bytes.

Exit codes: 0: done; 1: something is missing or does not fit; 2: wrong usage."""

import argparse
import base64
import hashlib
import os
import re
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import make_bundle  # noqa: E402
from make_bundle import Misfit  # noqa: E402

# Debian's spdlog and Gloo use condition_variable::wait of GLIBCXX_3.4.30, which is not in
# manylinux_2_34 (RHEL 9).
TAG = "py3-none-manylinux_2_35_x86_64"
MAX_GLIBC = (2, 35)
MAX_GLIBCXX = (3, 4, 30)
PROVIDED = re.compile(r"^lib(stdc\+\+\.so\.6|gcc_s\.so\.1)$")

NAME = "pawl-ps"
METADATA = """\
Metadata-Version: 2.1
Name: %(name)s
Version: %(version)s
Summary: A parameter server for tables larger than one machine, for NumPy and PyTorch
Requires-Python: >=3.9
Requires-Dist: numpy
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
"""
WHEEL = """\
Wheel-Version: 1.0
Generator: pawl make_wheel
Root-Is-Purelib: false
Tag: %s
""" % TAG
ENTRY_POINTS = """\
[console_scripts]
pawl = pawl.__main__:main
"""
TIME_STAMP = (2020, 1, 1, 0, 0, 0)


def check_versions(path, data):
    """Raises Misfit if the file needs a later glibc or libstdc++ than TAG promises."""
    for name, limit in (("GLIBC", MAX_GLIBC), ("GLIBCXX", MAX_GLIBCXX)):
        for match in re.finditer(rb"\0%s_([0-9.]+)(?=\0)" % name.encode(), data):
            version = tuple(int(part) for part in match.group(1).split(b"."))
            if version > limit:
                raise Misfit(
                    "%s needs %s %s, and the wheel's tag is %s"
                    % (path, name, match.group(1).decode(), TAG)
                )


class Wheel:
    def __init__(self, scratch):
        self.scratch = scratch
        # By path in the archive: (content, whether it is executable).
        self.files = {}
        # By soname: the path on this machine, and the new soname.
        self.carried = {}
        # Relocates files, and collects licences.
        self.bundle = make_bundle.Bundle(scratch)

    def add(self, name, data, executable=False):
        if name in self.files:
            raise Misfit("two files have the path %s" % name)
        self.files[name] = (data, executable)

    def collect_libraries(self, path):
        """Adds the libraries that the file needs to `carried`, each with a new soname."""
        for name, where in make_bundle.libraries(path).items():
            if PROVIDED.match(name) or name in self.carried:
                continue
            with open(where, "rb") as file:
                digest = hashlib.sha256(file.read()).hexdigest()[:8]
            stem, dot, version = name.partition(".so")
            self.carried[name] = (where, "%s-pawl-%s%s%s" % (stem, digest, dot, version))
            package = make_bundle.owner(where)
            self.bundle.packages[package[0]] = package

    def prepared(self, path, run_path, soname=None):
        """The stripped file with its dependencies renamed. Raises Misfit, see check_versions."""
        steps = []
        for need in make_bundle.needs(path):
            if need in self.carried:
                steps.append(("--replace-needed", need, self.carried[need][1]))
        if soname:
            steps.append(("--set-soname", soname))
        data = self.bundle.relocated(path, run_path, ("--force-rpath",), steps)
        check_versions(path, data)
        return data

    def add_libraries(self):
        for where, soname in self.carried.values():
            self.add("pawl/lib/" + soname, self.prepared(where, "$ORIGIN", soname))

    def write(self, out, version):
        info = "%s-%s.dist-info/" % (NAME.replace("-", "_"), version)
        self.bundle.add_licenses()
        for name, (data, _) in self.bundle.files.items():
            self.add(info + name, data)
        metadata = METADATA % {"name": NAME, "version": version}
        for name, text in (
            ("METADATA", metadata),
            ("WHEEL", WHEEL),
            ("entry_points.txt", ENTRY_POINTS),
        ):
            self.add(info + name, text.encode())
        record = "".join(
            "%s,sha256=%s,%d\n"
            % (
                name,
                base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode(),
                len(data),
            )
            for name, (data, _) in sorted(self.files.items())
        )
        self.add(info + "RECORD", (record + info + "RECORD,,\n").encode())
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, (data, executable) in sorted(self.files.items()):
                entry = zipfile.ZipInfo(name, TIME_STAMP)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if executable else 0o100644) << 16
                archive.writestr(entry, data)


def parse(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--out", required=True)
    parser.add_argument("--version", required=True)
    for name in ("--library", "--program", "--package", "--compiled_in"):
        parser.add_argument(name, action="append", default=[])
    parser.add_argument("--file", action="append", default=[], type=make_bundle.split_pair)
    return parser.parse_args(arguments)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main(arguments):
    options = parse(arguments)
    os.environ.pop("LD_LIBRARY_PATH", None)
    os.environ["LC_ALL"] = "C"
    try:
        with tempfile.TemporaryDirectory() as scratch:
            wheel = Wheel(scratch)
            for path in options.library + options.program:
                wheel.collect_libraries(path)
            for path in options.library:
                wheel.add("pawl/lib/" + os.path.basename(path), wheel.prepared(path, "$ORIGIN"))
            for path in options.program:
                name = "pawl/bin/" + os.path.basename(path)
                wheel.add(name, wheel.prepared(path, "$ORIGIN/../lib"), True)
            wheel.add_libraries()
            for path in options.package:
                wheel.add("pawl/" + path.split("/pawl/", 1)[1], read(path))
            for name, path in options.file:
                data = read(path)
                wheel.add("pawl/" + name, data, data.startswith(b"#!"))
            for name in options.compiled_in:
                wheel.bundle.add_compiled_in(name)
            wheel.write(options.out, options.version)
    except Misfit as misfit:
        print("make_wheel: %s" % misfit, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
