"""Checks the project's documents (.md files and READMEs).

It checks commands, flags, targets, files, names of tests and of code, and jobs.

A document's commands are in its code blocks (lines that start with "$ ", followed by their output,
or lines that start with a program of the project) and in its code spans. Pages made by
deploy/reference/generate are checked less strictly, since their blocks contain prose."""

import importlib.machinery
import importlib.util
import os
import re
import shlex

# The names of programs in deploy/reference/programs.md, by target.
TARGETS = {
    "//scheduler:pawl-scheduler": "pawl-scheduler",
    "//server:pawl-server": "pawl-server",
    "//worker:pawl-worker": "pawl-worker",
    "//deploy/pawlctl": "pawlctl",
    "//deploy/pawlctl:pawlctl": "pawlctl",
    "//tests/chaos/storm": "storm",
    "//tests/simulation:simulate": "simulate",
    "//tests/simulation/scale:scheduler_scale": "scheduler_scale",
    "//tests/perf:bench": "bench",
    "//tests/perf:moves": "moves",
    "//tests/perf:overlap": "overlap",
    "//tests/gpu:gpu_kernels": "gpu_kernels",
}
# Scripts, and the programs to which they pass flags.
PASSED_ON = {"chaos": ("storm",), "test": ("bazel",)}
# Scripts whose names are programs only after a path, because documents use the words otherwise.
ORDINARY_WORDS = {"backup_workers", "batch_size", "consistency", "run", "search"}
# Names of other projects.
NAMES = {
    "BackupAndRestore",
    "KeyedOptimizerWrapper",
    "OPENBLAS_CORETYPE",
    "PATH",
    "SavedModel",
    "SidecarEvaluator",
    "StringLookup",
    "TrainPipelineSparseDist",
    "clientAuth",
    "clip_grad_norm_",
    "keras",
    "memfd_create",
    "ndcg_score",
    "pzstd",
    "scrontab",
    "serverAuth",
    "terminationGracePeriodSeconds",
}
TOOLS = {
    "[",
    # The program of the Python package, and an example.
    "pawl",
    "../../bazel-bin/client_lib/example/example",
    "cut",
    "pip",
    "python",
    "umask",
    "while",
    "awk",
    "cat",
    "cd",
    "cp",
    "curl",
    "docker",
    "echo",
    "export",
    "grep",
    "install",
    "kill",
    "kubectl",
    "ls",
    "mkdir",
    "openssl",
    "sbatch",
    "sleep",
    "srun",
    "systemctl",
    "systemd-sysusers",
    "tail",
    "tar",
    "wait",
}
KEYWORDS = {"do", "done", "for", "if", "then", "fi", "until"}
BAZEL_FLAGS = {"config", "test_env", "test_filter"}
# The path of a program: from the project's folder, from two folders below it, or in a bundle.
PROGRAM_PATH = re.compile(
    r"(?:(?:\.\./\.\./)?deploy/|bazel-bin/|(?P<bundle>(?:/[\w-]+)*/?\bbin/))(?:[\w-]+/)*[\w-]+"
)
# Files with names that documents may use.
SOURCE_ENDS = (".h", ".cc", ".cu", ".proto", ".py", ".bzl", ".sh", ".mjs", ".pbtxt", ".md", ".json")
SKIPPED_FOLDERS = {".git", "node_modules", "__pycache__", "out", ".cache"}
MADE = "Made by deploy/reference/generate"

LABEL = re.compile(r"(?<![\w:/])//[A-Za-z0-9_./-]*(?::[A-Za-z0-9_.-]+)?")
FLAG = re.compile(r"--([a-z][a-z_-]*)")
PATH = re.compile(r"(?:[\w.*-]+/)+[\w.*-]*")
FILE = re.compile(r"[\w-]+\.(?:h|cc|cu|md|proto|py|sh|pbtxt|mjs|bzl)")
IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:(?:::|\.)[A-Za-z_]\w*)*(?:\(\))?")
METRIC = re.compile(r"\bpawl_[a-z_]+\b")
TEST_NAME = re.compile(r"\b([A-Z]\w*Test)\.([A-Z]\w+)\b")
JOB_FIELDS = re.compile(r"([a-z_]+)(?:: | \{).*", re.DOTALL)


class Block:
    """A code block: its lines without indentation, and the number of the first line."""

    def __init__(self, line, lines):
        self.line = line
        self.lines = lines

    def is_session(self):
        return any(line.startswith("$ ") for line in self.lines)

    def session(self):
        """Yields (line number, command, output lines) of each command after a "$ "."""
        commands = []
        for number, line in enumerate(self.lines, self.line):
            if line.startswith("$ "):
                commands.append((number, line[2:], []))
            elif commands:
                commands[-1][2].append(line)
        return commands


class Document:
    """An .md file."""

    def __init__(self, path, text):
        self.path = path
        self.is_made = text.startswith(MADE)
        self.blocks = []  # Block
        self.prose = []  # (line number, line)
        self.headings = {}  # By the number of each block's first line.
        lines = text.splitlines()
        heading, at, fence = "", 0, None
        while at < len(lines):
            line = lines[at]
            if line.startswith("```"):
                end = next(
                    (i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines)
                )
                # ```text starts a drawing.
                if line[3:].strip() != "text":
                    self.add_block(heading, at + 2, lines[at + 1 : end])
                at = end + 1
            elif line.startswith("    ") and (at == 0 or not lines[at - 1].strip()):
                end = at
                while end < len(lines) and (
                    lines[end].startswith("    ") or not lines[end].strip()
                ):
                    end += 1
                while not lines[end - 1].strip():
                    end -= 1
                self.add_block(heading, at + 1, [code[4:] for code in lines[at:end]])
                at = end
            else:
                if line.startswith("#"):
                    heading = line.lstrip("#").strip()
                self.prose.append((at + 1, line))
                at += 1

    def add_block(self, heading, line, lines):
        self.blocks.append(Block(line, lines))
        self.headings[line] = heading

    def spans(self):
        """Yields (line number, text) of each text between backquotes, which may span lines."""
        text = "\n".join(line for _, line in self.prose)
        for match in re.finditer(r"`([^`]+)`", text):
            yield self.prose[text.count("\n", 0, match.start())][0], " ".join(
                match.group(1).split()
            )

    def sessions(self):
        """Returns the commands with their output, by heading."""
        by_heading = {}
        for block in self.blocks:
            if block.is_session():
                by_heading.setdefault(self.headings[block.line], []).extend(block.session())
        return by_heading


def simple_commands(line):
    """Yields the words of each simple command in a shell line, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    lexer.whitespace_split = True
    commands, words, skip = [], [], False
    for token in lexer:
        if token and all(character in "();<>|&" for character in token):
            if words:
                commands.append(words)
            words, skip = [], token.startswith((">", "<"))
            continue
        if skip:
            skip = False
            continue
        if token == "$" or (not words and (token in KEYWORDS or re.fullmatch(r"\w+=.*", token))):
            continue
        words.append(token)
    if words:
        commands.append(words)
    return [command for command in commands if not (len(command) > 1 and command[1] == "in")]


def value_of(word):
    """Returns the value of a flag (--name=value), or the word itself."""
    return word.partition("=")[2] if word.startswith("--") else word


class Tree:
    """The names that documents can refer to."""

    def __init__(self, root):
        self.root = root
        self.files = []
        for folder, subfolders, names in os.walk(root):
            subfolders[:] = sorted(
                name
                for name in subfolders
                if name not in SKIPPED_FOLDERS and not name.startswith("bazel-")
            )
            self.files += [
                os.path.relpath(os.path.join(folder, name), root) for name in sorted(names)
            ]
        self.basenames = {os.path.basename(path) for path in self.files}
        self.text = {
            path: self.read(path)
            for path in self.files
            if path.endswith(SOURCE_ENDS)
            or "/" not in path
            or os.path.basename(path) == "BUILD"
            or path.startswith("deploy/")
        }
        # The documentation's own test contains wrong names on purpose.
        self.documents = [
            path
            for path in self.files
            if path.endswith(".md") or os.path.basename(path) == "README"
        ]
        code = "\n".join(
            re.sub(r"(?m)(^|\s)//.*$", "", text) if path.endswith((".h", ".cc", ".cu")) else text
            for path, text in self.text.items()
            if path not in self.documents and path != "deploy/documentation_test.py"
        )
        self.words = set(re.findall(r"[A-Za-z_]\w*", code)) | NAMES
        self.tests = set(re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", code))
        self.targets = self.read_targets()
        self.configs = set(
            re.findall(r"^(?:build|test):(\w+)", self.text.get(".bazelrc", ""), re.MULTILINE)
        )
        self.flags = self.read_flags(self.text.get("deploy/reference/programs.md", ""))
        job = self.text.get("deploy/reference/job.md", "")
        section = re.search(r"^## Job$(.*?)^## ", job, re.MULTILINE | re.DOTALL)
        self.job_fields = (
            set(re.findall(r"^- `(\w+)`", section.group(1), re.MULTILINE)) if section else set()
        )
        self.metrics = set(METRIC.findall(self.text.get("deploy/reference/metrics.md", "")))

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def read_targets(self):
        """Returns {package: (rule, name) of its targets}, with the reader of tests/lint."""
        path = os.path.join(
            os.path.dirname(os.path.realpath(__file__)), "../tests/lint/check_tree.py"
        )
        loader = importlib.machinery.SourceFileLoader("check_tree", path)
        check_tree = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("check_tree", loader)
        )
        loader.exec_module(check_tree)
        targets = {}
        for path, text in self.text.items():
            if os.path.basename(path) == "BUILD":
                package = os.path.dirname(path)
                targets[package] = {
                    (target.rule, target.name) for target in check_tree.read_targets(package, text)
                }
        return targets

    def read_flags(self, programs):
        """Returns {"pawl-server" or "pawlctl scale": names of its flags}."""
        flags = {"bazel": BAZEL_FLAGS}
        for section in re.split(r"^## ", programs, flags=re.MULTILINE)[1:]:
            name, text = section.split("\n", 1)
            # A program lists one flag a line. A script's usage is prose.
            listed = re.findall(r"^ +--([a-z][a-z_-]*)", text, re.MULTILINE)
            flags[name] = set(listed if "Flags" in text else FLAG.findall(text))
        for script, others in PASSED_ON.items():
            for other in others:
                flags.setdefault(script, set()).update(flags.get(other, ()))
        return flags

    def has_target(self, label):
        package, _, name = label[2:].partition(":")
        if package == "..." or package.endswith("/..."):
            return any(one == package[:-4] or one.startswith(package[:-3]) for one in self.targets)
        name = name or os.path.basename(package)
        # The names of a macro's targets start with the macro's name argument.
        return any(
            name == target
            or (not re.match(r"(cc|sh)_|genrule$", rule) and target and name.startswith(target))
            for rule, target in self.targets.get(package, ())
        )

    def has_target_called(self, name):
        return any(self.has_target("//%s:%s" % (package, name)) for package in self.targets)

    def has_path(self, path, folder):
        """Whether a path exists, relative to the root or the document. * matches anything."""
        pattern = re.escape(path.rstrip("/")).replace(r"\*", "[^/]*") + "(/.*)?"
        prefix = re.escape(folder + "/") if folder else ""
        # A table of folders: "`tests/` | `harness/`, `chaos/`".
        if path.endswith("/") and path.count("/") == 1:
            prefix = "(.*/)?"
        return any(
            re.fullmatch(pattern, file) or re.fullmatch(prefix + pattern, file)
            for file in self.files
        )


class Checker:
    """Checks documents against a tree. `problems` has lines "path:line: what is wrong"."""

    def __init__(self, tree):
        self.tree = tree
        self.problems = []
        # (path:line, text) of jobs and of parts of jobs, for check_job.
        self.jobs = []
        self.parts = []

    def problem(self, document, line, text):
        self.problems.append("%s:%d: %s" % (document.path, line, text))

    def check(self, document):
        for block in document.blocks:
            self.check_block(document, block)
        # The grammar of a format defines its own names.
        own_words = {
            word
            for block in document.blocks
            for text in block.lines
            for word in re.findall(r"\w+", text)
        }
        for line, span in document.spans():
            self.check_span(document, line, span, own_words)
        own_metrics = set(re.findall(r'as: "(pawl_\w+)"', self.tree.text.get(document.path, "")))
        for line, text in document.prose + [
            (block.line + i, text)
            for block in document.blocks
            for i, text in enumerate(block.lines)
        ]:
            for label in LABEL.findall(text):
                if len(label) > 2 and not self.tree.has_target(
                    label.rstrip(".") if "..." not in label else label
                ):
                    self.problem(document, line, "there is no target %s" % label)
            for metric in METRIC.findall(text):
                if metric not in self.tree.metrics | own_metrics and metric not in self.tree.words:
                    self.problem(document, line, "there is no metric %s" % metric)
            for suite, name in TEST_NAME.findall(text):
                if (suite, name) not in self.tree.tests:
                    self.problem(document, line, "there is no test %s.%s" % (suite, name))

    def program_of(self, word):
        """Returns the program's name in programs.md, or None."""
        if PROGRAM_PATH.fullmatch(word):
            return os.path.basename(word)
        return word if word in self.tree.flags and word not in ORDINARY_WORDS else None

    def check_block(self, document, block):
        if block.is_session():
            for line, command, _ in block.session():
                self.check_command(document, line, command)
            return
        text = "\n".join(block.lines)
        match = JOB_FIELDS.fullmatch(text.strip())
        if (
            match
            and match.group(1) not in self.tree.job_fields
            and match.group(1) not in self.tree.words
        ):
            self.problem(document, block.line, "a job has no field %s" % match.group(1))
        if match and match.group(1) in self.tree.job_fields:
            where = "%s:%d" % (document.path, block.line)
            (self.jobs if match.group(1) == "name" else self.parts).append((where, text))
            return
        # Lines between two empty lines are all shell, or none is.
        begin = 0
        for end in range(len(block.lines) + 1):
            if end == len(block.lines) or not block.lines[end].strip():
                self.check_lines(document, block.line + begin, block.lines[begin:end])
                begin = end + 1

    def check_lines(self, document, first_line, lines):
        first_words = [line.split()[0] for line in lines]
        is_shell = not document.is_made and (
            first_words[:1]
            and first_words[0] in TOOLS
            or any(self.program_of(word) or "$(" in word for word in first_words)
        )
        continued = ""
        for number, (line, word) in enumerate(zip(lines, first_words), first_line):
            if continued:
                line, word = continued + line.strip(), continued.split()[0]
            continued = line[:-1] if line.endswith("\\") else ""
            if continued:
                continue
            if is_shell or self.program_of(word):
                self.check_command(document, number, line)
            elif not document.is_made and re.match(r"[\w./-]*\w .*(?<!\S)--[a-z]", line.strip()):
                self.problem(
                    document,
                    number,
                    "what is %s? No program of the project, and none in TOOLS" % word,
                )

    def check_span(self, document, line, span, own_words):
        words = span.split()
        if self.program_of(words[0]):
            self.check_command(document, line, span)
        elif span.startswith("--"):
            name = FLAG.match(span)
            if not name or not any(name.group(1) in flags for flags in self.tree.flags.values()):
                self.problem(document, line, "no program has the flag %s" % span)
        elif PATH.fullmatch(span):
            self.check_path(document, line, span)
        elif FILE.fullmatch(span):
            if span not in self.tree.basenames:
                self.problem(document, line, "there is no file %s" % span)
        elif re.fullmatch(r"[a-z0-9_]+_test", span):
            if not self.tree.has_target_called(span) and span not in self.tree.words:
                self.problem(document, line, "there is no test %s" % span)
        elif IDENTIFIER.fullmatch(span):
            self.check_names(document, line, span, own_words)
        elif JOB_FIELDS.fullmatch(span):
            if words[0].rstrip(":") in self.tree.job_fields:
                self.parts.append(("%s:%d" % (document.path, line), span))
            else:
                self.check_names(document, line, words[0].rstrip(":"), own_words)

    def check_names(self, document, line, names, own_words):
        for name in re.findall(r"[A-Za-z_]\w*", names):
            if name not in self.tree.words | own_words:
                self.problem(document, line, "no code has the name %s" % name)

    def check_path(self, document, line, path):
        if path.startswith("bazel-bin/"):
            package, name = os.path.split(path[len("bazel-bin/") :])
            if package not in self.tree.targets or (
                name
                and not self.tree.has_target("//%s:%s" % (package, name))
                and path[len("bazel-bin/") :] not in self.tree.targets
            ):
                self.problem(document, line, "Bazel builds no %s" % path)
        elif (
            not path.startswith(("out/", "/", ".."))
            and not self.tree.has_path(path, os.path.dirname(document.path))
            and not self.tree.has_target("//%s:%s" % os.path.split(path))
        ):
            self.problem(document, line, "there is no %s" % path)

    def check_command(self, document, line, command):
        try:
            commands = simple_commands(command)
        except ValueError as error:
            self.problem(document, line, "cannot be read as a command: %s" % error)
            return
        for words in commands:
            program = self.program_of(words[0])
            if program is None and words[0] != "bazel":
                if words[0] not in TOOLS and not document.is_made:
                    self.problem(
                        document,
                        line,
                        "what is %s? No program of the project, and none in TOOLS" % words[0],
                    )
                # A command that is an argument: --wrap="pawl-server ...".
                for value in map(value_of, words[1:]):
                    if " " in value.strip() and self.program_of(value.split()[0]):
                        self.check_command(document, line, value)
                continue
            if "/" in words[0] and not PROGRAM_PATH.fullmatch(words[0]).group("bundle"):
                self.check_path(document, line, words[0].replace("../", ""))
            if program == "bazel":
                self.check_bazel(document, line, words)
                continue
            if program == "pawlctl" and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
                program = "pawlctl " + words[1]
                if program not in self.tree.flags:
                    self.problem(document, line, "pawlctl has no command %s" % words[1])
                    continue
            self.check_flags(document, line, program, words[1:])

    def check_flags(self, document, line, program, words):
        for word in words:
            flag = FLAG.match(word.lstrip("["))
            if not flag or flag.group(1) in ("help", "helpfull"):
                continue
            if flag.group(1) not in self.tree.flags.get(program, ()):
                self.problem(document, line, "%s has no flag --%s" % (program, flag.group(1)))
            if (
                flag.group(1) == "config"
                and word.partition("=")[2].strip("].") not in self.tree.configs
            ):
                self.problem(document, line, ".bazelrc has no %s" % word)
        # Arguments that are files of the project.
        for word in words:
            value = value_of(word)
            if PATH.fullmatch(value) and value.split("/")[0] in ("deploy", "tests", "proto"):
                self.check_path(document, line, value)

    def check_bazel(self, document, line, words):
        split = words.index("--") if "--" in words else len(words)
        labels = [word for word in words[:split] if word.startswith("//")]
        self.check_flags(document, line, "bazel", words[1:split])
        if len(words) > 1 and words[1] not in ("build", "test", "run"):
            self.problem(document, line, "bazel has no command %s here" % words[1])
        if split < len(words):
            program = TARGETS.get(labels[0]) if labels else None
            if program is None:
                self.problem(
                    document, line, "TARGETS does not know what flags %s has" % (labels or "this")
                )
            else:
                self.check_flags(document, line, program, words[split + 1 :])
