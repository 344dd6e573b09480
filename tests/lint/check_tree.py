#!/usr/bin/env python3
"""Checks the rules of Pawl's tree that no compiler checks.

Usage: check_tree.py [ROOT]     (default: the workspace that contains this file)

1. Dependencies point one way: LAYERS, NOT_KNOWN.
2. Only main files read flags: FLAG_READERS. Production code uses no test library and no fake.
3. Header guards spell the path. No file names a path of one machine. Only PLAINTEXT_FILES make
   credentials without TLS. Prefetches go through client_lib/base/compiler.h.
4. A folder holds at most MAX_SOURCES source files, a BUILD file at most MAX_BUILD_LINES lines, and
   a line of documents, messages, Python and BUILD files at most MAX_COLUMNS columns.
5. The wording avoids BAD_PHRASES.
6. The root has no files but ROOT_FILES, those that begin with a dot, and those that git does not
   know.

Reads the files under the folders of TOP_LEVEL and those of the root, and prints one line
"path:line: what is wrong, and what to do" for each broken rule.
Exit codes: 0: no rule is broken, 1: some are, 2: wrong usage.

A file belongs to a test if its name is *_test.<ext>, if a cc_test or a target with testonly = True
lists it in srcs or hdrs, or if it is in tests/. Layers do not restrict tests.
"""

import ast
import fnmatch
import os
import re
import subprocess
import sys

TOP_LEVEL = (
    "proto", "client_lib", "server", "worker", "scheduler", "tests", "deploy", "third_party")
ROOT_FILES = {"WORKSPACE", "BUILD", "README.md", "CHANGELOG.md"}
SKIPPED_FOLDERS = {"node_modules", "__pycache__", "out"}
SOURCES = (".h", ".cc", ".cu", ".cuh")

# The parts of the project that a folder may use. The first entry whose folder contains the file
# applies. Every folder may use system libraries (third_party), except for FORBIDDEN_HEADERS.
LAYERS = (
    ("proto", ("proto",)),
    ("client_lib/base", ("proto", "client_lib/base")),
    ("client_lib/rpc", ("proto", "client_lib/base", "client_lib/rpc")),
    ("client_lib", ("proto", "client_lib")),
    ("server/optimizer", ("proto", "client_lib/base", "server/optimizer")),
    ("server/shard", ("proto", "client_lib/base", "server/optimizer", "server/shard")),
    ("server/replication",
     ("proto", "client_lib", "server/shard", "server/threads", "server/replication")),
    # Reads checkpoints without a running server.
    ("server/export", ("proto", "client_lib/base", "client_lib/job", "server/shard",
                       "server/storage", "server/export")),
    ("server", ("proto", "client_lib", "server")),
    # With collectives the workers apply the optimizer that otherwise runs on the servers.
    ("worker", ("proto", "client_lib", "worker", "server/optimizer")),
    # Scheduler and pawlctl share the checkpoint store with the servers. The scheduler computes
    # metrics and learning rates with the optimizers' arithmetic.
    ("scheduler", ("proto", "client_lib", "scheduler", "server/optimizer", "server/storage")),
    ("deploy",
     ("proto", "client_lib", "scheduler", "server/export", "server/storage", "deploy")),
)

# What a folder must not use. The state machine and its arithmetic are pure.
PURE = ("gRPC", "logging", "files", "time", "threads")
NOT_KNOWN = (
    ("server/shard", PURE),
    ("server/optimizer", PURE),
    ("client_lib/base", ("gRPC",)),
    ("server/replication", ("gRPC", "files")),
    ("server/storage", ("gRPC",)),
    ("server/export", ("gRPC",)),
)
FORBIDDEN_HEADERS = (
    (r"(grpc|grpcpp|grpc\+\+)/", "gRPC"),
    (r"proto/.*\.grpc\.pb\.h$", "gRPC"),
    (r"client_lib/rpc/grpc/.*\.h$", "gRPC"),
    (r"spdlog/", "logging"),
    (r"(fstream|iostream|filesystem|cstdio|stdio\.h|fcntl\.h|unistd\.h|sys/.*)$", "files"),
    (r"client_lib/base/(env|testing/fault_env)\.h$", "files"),
    (r"(chrono|ctime|time\.h)$", "time"),
    (r"(client_lib/base/clock\.h|client_lib/base/testing/simulated_clock\.h|absl/time/.*)$",
     "time"),
    (r"(thread|future|stop_token|pthread\.h)$", "threads"),
)
FORBIDDEN_TARGETS = (
    (r"//third_party:(grpc|grpc_reflection)$", "gRPC"),
    (r"//proto:.*_grpc$", "gRPC"),
    (r"//client_lib/rpc/grpc:.*$", "gRPC"),
    (r"//third_party:spdlog$", "logging"),
    (r"//client_lib/base(:env|/testing:fault_env)$", "files"),
    (r"//client_lib/base(:clock|/testing:simulated_clock)$", "time"),
)

# The main file of a program reads its flags. Two files parse command lines for main files and read
# no flag of their own: one for pawlctl's subcommands, one for all daemons.
FLAG_READERS = ("main.cc", "deploy/pawlctl/command_line.cc", "client_lib/daemon/daemon.cc")

# A path of one machine. Written in two parts so that this file does not break its own rule.
MACHINE_PATH = re.compile(r"(?<![\w./$})*-])/(ho" r"me|wo" r"rk|ro" r"ot|Us" r"ers)/\w")

# clang-format limits C++. Tables, examples, images and link targets in documents have no limit.
MAX_COLUMNS = 100
WIDTH_CHECKED = (".proto", ".py", ".bzl", ".md", "BUILD")
GENERATED_DOCUMENTS = tuple(
    "deploy/reference/%s.md" % page for page in ("errors", "job", "metrics", "programs"))

# A folder is about one thing. Tests and fuzzers do not count.
# A default elsewhere would let a process with certificates connect without them.
PLAINTEXT_CREDENTIALS = re.compile(r"\bInsecure(Channel|Server)Credentials\(")
PLAINTEXT_FILES = ("client_lib/security/security.cc", "scheduler/store/etcd_client.cc")

# GCC removes calls of functions that only call this.
BUILTIN_PREFETCH = re.compile(r"\b__builtin_prefetch\(")
PREFETCH_HEADER = "client_lib/base/compiler.h"

MAX_SOURCES = 25
COUNTED_SOURCES = (".h", ".cc", ".cu", ".py", ".proto")
NOT_COUNTED = re.compile(r"_(test|fuzz)\.")
MAX_BUILD_LINES = 300

# Wording to avoid, and what to write. A space matches any white space, also
# a line break inside a comment. Checked in sources, documents, BUILD files and scripts.
BAD_PHRASES = (
    (r"\bwhoever\b", "name who does it"),
    (r"\b(somebody|nobody)\b", "name who does it"),
    (r"\bwhat is there\b", "name the thing"),
    (r"\bof which\b", "write two sentences"),
    (r"(?:^[^\S\n]*(?:(?://+|#+|\*|-|\||\d+\.)[^\S\n]*)?|[.!?:] |\")(?-i:Of) (?=[a-z])",
     "begin the sentence with its subject"),
    (r"\breigns?\b", "write: term"),
    (r"\blast(_| )words\b", "write: failure policy, or failure report"),
    (r"\b(un)?parked\b", "write: pending"),
    (r"\bis (not )?begun\b", "write: has started, has not started"),
    (r"\bthat is over\b", "write: that has ended"),
    (r"\bgoes on\b", "write: continues"),
    (r"\bhas it made anew\b", "write: recreates it"),
    (r"\bin its life\b", "write: in its incarnation"),
    (r"\bformer life\b", "write: previous incarnation"),
    (r"\b(?-i:\w+(IsOver|IsGone|HasChanged|AreThere|IsThere))\(",
     "name an action MakeX, an event OnX, a query IsX or HasX"),
)
PHRASES_CHECKED = SOURCES + (".proto", ".py", ".bzl", ".md", ".sh", "BUILD")
PHRASES_NOT_CHECKED = ("tests/lint/check_tree.py", "tests/lint/check_tree_test.py")
GAP = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:(?://+|#+)[ \t]*)?)"
BAD_PHRASE_PATTERNS = tuple(
    (re.compile(pattern.replace(" ", GAP), re.IGNORECASE | re.MULTILINE), advice)
    for pattern, advice in BAD_PHRASES)

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
LINK_TARGET = re.compile(r"\[[^\]]*\]: ")
PROTO_IMPORT = re.compile(r'^\s*import\s+(?:public\s+|weak\s+)?"([^"]+)"')


def is_in(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    for folder, allowed in LAYERS:
        if is_in(path, folder):
            return folder, allowed
    return None, None


def not_known(path):
    return next((what for folder, what in NOT_KNOWN if is_in(path, folder)), ())


def is_project_path(path):
    return path.split("/", 1)[0] in TOP_LEVEL and not is_in(path, "third_party")


class Target:
    """One rule of a BUILD file."""

    def __init__(self, package, rule, name, line, files, deps, testonly):
        self.package = package
        self.rule = rule
        self.name = name
        self.line = line
        self.files = files
        self.deps = deps
        self.testonly = testonly


def strings_in(node):
    """The string constants in an expression, including the patterns of globs."""
    return [part.value for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def read_targets(package, text):
    """The targets of a BUILD file, which is valid Python. Raises SyntaxError."""
    targets = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        values = {keyword.arg: keyword.value for keyword in node.keywords}
        if "name" not in values:
            continue
        files, deps = [], []
        for attribute in ("srcs", "hdrs", "src"):
            if attribute in values:
                files += strings_in(values[attribute])
        # Not data: running a program does not depend on its code.
        for attribute in ("deps", "implementation_deps"):
            if attribute in values:
                deps += strings_in(values[attribute])
        testonly = values.get("testonly")
        is_testonly = isinstance(testonly, ast.Constant) and testonly.value in (True, 1)
        targets.append(
            Target(package, node.func.id, "".join(strings_in(values["name"])), node.lineno, files,
                   deps, is_testonly or node.func.id.endswith("_test")))
    return targets


def absolute_label(package, label):
    """//package:target of a label, or None for another repository or a plain file."""
    if label.startswith("@"):
        return None
    if label.startswith(":"):
        return "//%s%s" % (package, label)
    if label.startswith("//"):
        if ":" in label:
            return label
        return "%s:%s" % (label, label.rsplit("/", 1)[-1].lstrip("/"))
    return None


class Checker:
    def __init__(self, root):
        self.root = root
        self.errors = []
        self.test_files = set()
        self.testonly_targets = set()

    def error(self, path, line, message):
        self.errors.append("%s:%d: %s" % (path, line, message))

    def files(self):
        for top in TOP_LEVEL:
            for folder, subfolders, names in os.walk(os.path.join(self.root, top)):
                subfolders[:] = sorted(set(subfolders) - SKIPPED_FOLDERS)
                for name in sorted(names):
                    yield os.path.relpath(os.path.join(folder, name), self.root)
        for name in sorted(os.listdir(self.root)):
            # In a git worktree .git is a file that names the repository.
            if name != ".git" and os.path.isfile(os.path.join(self.root, name)):
                yield name

    def read(self, path):
        """The content, or None if the file is not text."""
        try:
            with open(os.path.join(self.root, path), encoding="utf-8") as file:
                return file.read()
        except (UnicodeDecodeError, FileNotFoundError):
            return None

    def is_test(self, path):
        stem = os.path.splitext(path)[0]
        return is_in(path, "tests") or stem.endswith("_test") or path in self.test_files

    def stray_files(self):
        """The files of the root that do not belong there."""
        names = set(os.listdir(self.root))
        if os.path.exists(os.path.join(self.root, ".git")):
            command = ["git", "-C", self.root, "ls-files", "-z"]
            listed = subprocess.run(command, capture_output=True, text=True, check=False)
            names &= set(listed.stdout.split("\0"))
        return {name for name in names - ROOT_FILES if not name.startswith(".")}

    def run(self):
        texts = {}
        stray = self.stray_files()
        for path in self.files():
            if "/" not in path and path in stray:
                self.error(path, 1, "does not belong into the root: delete or move it")
            text = self.read(path)
            if text is not None:
                texts[path] = text
        targets = []
        for path, text in texts.items():
            if os.path.basename(path) in ("BUILD", "BUILD.bazel"):
                try:
                    targets += read_targets(os.path.dirname(path), text)
                except SyntaxError as problem:
                    self.error(path, problem.lineno or 1,
                               "cannot be read as a BUILD file: %s" % problem.msg)
                self.check_build_length(path, text)
        self.find_test_files(targets, texts)
        for target in targets:
            self.check_target(target)
        self.check_folders(texts)
        for path, text in texts.items():
            self.check_machine_paths(path, text)
            if path.endswith(WIDTH_CHECKED) and path not in GENERATED_DOCUMENTS:
                self.check_width(path, text)
            if path.endswith(PHRASES_CHECKED) or text.startswith("#!"):
                self.check_phrases(path, text)
            if path.endswith(SOURCES):
                self.check_includes(path, text)
                self.check_credentials(path, text)
                self.check_prefetches(path, text)
            if path.endswith(".h"):
                self.check_guard(path, text)
            if path.endswith(".proto"):
                self.check_imports(path, text)
        return self.errors

    def find_test_files(self, targets, texts):
        for target in targets:
            if not target.testonly:
                continue
            self.testonly_targets.add("//%s:%s" % (target.package, target.name))
            for pattern in target.files:
                self.test_files.update(
                    fnmatch.filter(texts, os.path.join(target.package, pattern)))

    def check_folders(self, paths):
        sources = {}
        for path in paths:
            folder, name = os.path.split(path)
            if name.endswith(COUNTED_SOURCES) and not NOT_COUNTED.search(name):
                sources[folder] = sources.get(folder, 0) + 1
        for folder, count in sources.items():
            if count > MAX_SOURCES:
                self.error(folder, 1, "holds %d source files, at most %d are allowed: split it" %
                           (count, MAX_SOURCES))

    def check_build_length(self, path, text):
        lines = len(text.splitlines())
        if lines > MAX_BUILD_LINES:
            self.error(path, MAX_BUILD_LINES + 1,
                       "has %d lines, at most %d are allowed: split the package" %
                       (lines, MAX_BUILD_LINES))

    def check_phrases(self, path, text):
        if path in PHRASES_NOT_CHECKED:
            return
        for pattern, advice in BAD_PHRASE_PATTERNS:
            for match in pattern.finditer(text):
                # The end: a match may begin at the start of a line or in the line before.
                line = text.count("\n", 0, match.end()) + 1
                phrase = " ".join(match.group(0).split())
                self.error(path, line, "says '%s': %s" % (phrase, advice))

    def check_target(self, target):
        path = os.path.join(target.package, "BUILD")
        folder, allowed = layer_of(target.package)
        for label in target.deps:
            label = absolute_label(target.package, label)
            if label is None or target.testonly or is_in(target.package, "tests"):
                continue
            name = "//%s:%s" % (target.package, target.name)
            package = label[2:].split(":")[0]
            if re.match(r"//third_party:gtest", label):
                self.error(path, target.line,
                           "%s depends on %s but is no test: make it testonly = True" %
                           (name, label))
            if folder is None:
                continue
            if is_project_path(package) and not any(is_in(package, part) for part in allowed):
                self.error(path, target.line, "%s depends on %s: %s may use only %s" %
                           (name, label, folder, ", ".join(allowed)))
            for pattern, what in FORBIDDEN_TARGETS:
                if what in not_known(target.package) and re.match(pattern, label):
                    self.error(path, target.line,
                               "%s depends on %s: %s knows no %s; pass in what it needs" %
                               (name, label, folder, what))
            is_main = target.rule == "cc_binary" or target.files == ["main.cc"]
            if label == "//third_party:absl_flags" and not is_main and not any(
                    is_in(reader, target.package) for reader in FLAG_READERS if "/" in reader):
                self.error(path, target.line,
                           "%s depends on %s: only a program's main.cc reads flags" % (name, label))

    def check_includes(self, path, text):
        folder, allowed = layer_of(path)
        if self.is_test(path):
            return
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            header = match.group(1)
            if re.match(r"(gtest|gmock)/", header):
                self.error(
                    path, number,
                    "includes %s but is no test: name it *_test.cc or make its target testonly" %
                    header)
            reads_flags = os.path.basename(path) in FLAG_READERS or path in FLAG_READERS
            if header.startswith("absl/flags/") and not reads_flags:
                self.error(
                    path, number,
                    "includes %s: only a program's main.cc reads flags; pass an options struct" %
                    header)
            if header.startswith(("./", "../")):
                self.error(path, number,
                           "includes %s: write the path from the workspace's root" % header)
            if header in self.test_files:
                self.error(path, number, "includes %s, which belongs to a testonly target" % header)
            if allowed is not None and is_project_path(header) and not any(
                    is_in(header, part) for part in allowed):
                self.error(path, number,
                           "includes %s: %s may use only %s" % (header, folder, ", ".join(allowed)))
            for pattern, what in FORBIDDEN_HEADERS:
                if what in not_known(path) and re.match(pattern, header):
                    self.error(path, number,
                               "includes %s: %s knows no %s; pass in what it needs" %
                               (header, folder, what))

    def check_credentials(self, path, text):
        if self.is_test(path) or "/testing/" in path or path in PLAINTEXT_FILES:
            return
        for number, line in enumerate(text.splitlines(), 1):
            if PLAINTEXT_CREDENTIALS.search(line):
                self.error(path, number,
                           "connects without TLS: take the credentials from Security")

    def check_prefetches(self, path, text):
        if self.is_test(path) or path == PREFETCH_HEADER:
            return
        for number, line in enumerate(text.splitlines(), 1):
            if BUILTIN_PREFETCH.search(line):
                self.error(path, number, "use %s, which says why" % PREFETCH_HEADER)

    def check_imports(self, path, text):
        for number, line in enumerate(text.splitlines(), 1):
            match = PROTO_IMPORT.match(line)
            if match and not match.group(1).startswith(("proto/", "google/protobuf/")):
                self.error(path, number,
                           "imports %s: messages may use only proto/" % match.group(1))

    def check_guard(self, path, text):
        guard = "PAWL_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
        lines = [line.strip() for line in text.splitlines()]
        for wanted in ("#ifndef " + guard, "#define " + guard, "#endif  // " + guard):
            if wanted not in lines:
                self.error(path, 1, "lacks the line '%s'" % wanted)

    def check_machine_paths(self, path, text):
        for number, line in enumerate(text.splitlines(), 1):
            match = MACHINE_PATH.search(line)
            if match:
                self.error(
                    path, number,
                    "names a path of one machine (%s...): take it from a flag or the environment" %
                    match.group(0))

    def check_width(self, path, text):
        is_example = False
        for number, line in enumerate(text.splitlines(), 1):
            if path.endswith(".md"):
                if line.startswith("```"):
                    is_example = not is_example
                if is_example or line.startswith(("|", "    ", "![")) or LINK_TARGET.match(line):
                    continue
            # A shell command of a genrule cannot be broken everywhere.
            if len(line) > MAX_COLUMNS and "$(location" not in line and "-fPIC" not in line:
                self.error(path, number, "has %d columns, at most %d are allowed" %
                           (len(line), MAX_COLUMNS))


def main(arguments):
    if len(arguments) > 1 or (arguments and not os.path.isdir(arguments[0])):
        print(__doc__, file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.realpath(__file__))
    root = arguments[0] if arguments else os.path.join(here, "..", "..")
    errors = Checker(os.path.realpath(root)).run()
    for error in errors:
        print(error)
    if errors:
        print("%d rules broken; tests/lint/check_tree.py states them" % len(errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
