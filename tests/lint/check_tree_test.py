#!/usr/bin/env python3
"""Tests each rule of check_tree.py on a small tree that keeps it and one that breaks it."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import check_tree  # noqa: E402


def header(path, body=""):
    guard = "PAWL_" + path.replace("/", "_").replace(".", "_").upper() + "_"
    return "#ifndef %s\n#define %s\n%s\n#endif  // %s\n" % (guard, guard, body, guard)


def includes(*headers):
    return "".join('#include "%s"\n' % path for path in headers)


class CheckTreeTest(unittest.TestCase):

    def errors(self, files):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return check_tree.Checker(root).run()

    def assert_broken(self, files, *parts):
        errors = self.errors(files)
        self.assertEqual(len(errors), 1, errors)
        for part in parts:
            self.assertIn(part, errors[0])

    def assert_clean(self, files):
        self.assertEqual(self.errors(files), [])

    def test_valid_tree_passes(self):
        self.assert_clean({
            "proto/types.proto": 'import "google/protobuf/any.proto";\n',
            "proto/job.proto": 'import "proto/types.proto";\n',
            "client_lib/base/clock.h": header("client_lib/base/clock.h", "#include <chrono>"),
            "client_lib/rpc/channel.cc": includes("client_lib/base/clock.h", "grpcpp/grpcpp.h"),
            "client_lib/session/a.cc": includes("client_lib/rpc/channel.h", "proto/job.pb.h"),
            "server/shard/shard.cc": '#include <vector>\n#include "server/optimizer/sgd.h"\n',
            "server/service.cc": includes("server/shard/shard.h", "client_lib/client.h"),
            "worker/main.cc": includes("absl/flags/flag.h", "client_lib/client.h"),
            "worker/loop_test.cc": includes("gtest/gtest.h", "server/shard/shard.h"),
        })

    def test_layers_do_not_include_upwards(self):
        for path, include in (
            ("client_lib/base/a.cc", "client_lib/rpc/b.h"),
            ("client_lib/rpc/a.cc", "client_lib/client.h"),
            ("client_lib/a.cc", "worker/b.h"),
            ("client_lib/a.cc", "server/service.h"),
            ("server/a.cc", "worker/b.h"),
            ("server/a.cc", "scheduler/b.h"),
            ("server/optimizer/a.cc", "server/shard/b.h"),
            ("server/shard/a.cc", "server/b.h"),
            ("server/shard/a.cc", "client_lib/rpc/b.h"),
            ("worker/a.cc", "server/b.h"),
            ("worker/a.cc", "tests/harness/b.h"),
            ("scheduler/a.cc", "server/b.h"),
            ("scheduler/a.cc", "deploy/pawlctl/b.h"),
        ):
            with self.subTest(path=path, include=include):
                self.assert_broken({path: '#include "%s"\n' % include}, path + ":1:", include)

    def test_layers_apply_to_deps(self):
        build = 'cc_library(name = "a", srcs = ["a.cc"], deps = ["//worker/data:reader"])\n'
        self.assert_broken({"client_lib/BUILD": build}, "client_lib/BUILD:1:",
                           "//worker/data:reader")
        self.assert_clean({"client_lib/BUILD": build.replace("cc_library", "cc_test")})

    def test_shard_is_pure(self):
        for include in ("grpcpp/grpcpp.h", "proto/parameter.grpc.pb.h", "spdlog/spdlog.h",
                        "thread", "chrono", "fstream", "unistd.h", "sys/stat.h",
                        "client_lib/base/clock.h", "client_lib/base/env.h"):
            for folder in ("server/shard", "server/optimizer"):
                with self.subTest(include=include, folder=folder):
                    self.assert_broken({folder + "/a.cc": "#include <%s>\n" % include}, include)
        build = 'cc_library(name = "a", deps = ["//third_party:grpc"])\n'
        self.assert_broken({"server/shard/BUILD": build}, "//third_party:grpc")
        self.assert_clean({"server/shard/a_test.cc": includes("chrono", "gtest/gtest.h")})

    def test_folders_avoid_forbidden_headers(self):
        for folder, include in (
            ("client_lib/base", "grpcpp/server.h"),
            ("server/replication", "grpcpp/server.h"),
            ("server/replication", "client_lib/rpc/grpc/grpc_transport.h"),
            ("server/replication", "unistd.h"),
            ("server/replication", "server/data_plane/data_plane.h"),
            ("server/storage", "grpcpp/server.h"),
            ("server/export", "grpcpp/server.h"),
        ):
            with self.subTest(include=include, folder=folder):
                self.assert_broken({folder + "/a.cc": '#include "%s"\n' % include}, include)
        self.assert_clean({"server/storage/a.cc": "#include <unistd.h>\n"})
        self.assert_clean({"server/replication/a.cc": '#include "spdlog/spdlog.h"\n'})

    def test_only_main_files_read_flags(self):
        flag = includes("absl/flags/flag.h")
        self.assert_broken({"worker/loop.cc": flag}, "worker/loop.cc:1:", "main.cc")
        library = 'cc_library(name = "a", srcs = ["%s"], deps = ["//third_party:absl_flags"])\n'
        self.assert_broken({"worker/BUILD": library % "loop.cc"}, "absl_flags")
        self.assert_clean({"worker/BUILD": library % "main.cc"})
        self.assert_clean({"deploy/pawlctl/command_line.cc": includes("absl/flags/reflection.h")})
        self.assert_broken({"deploy/pawlctl/run.cc": flag}, "deploy/pawlctl/run.cc")

    def test_only_security_makes_credentials_without_tls(self):
        code = "return grpc::InsecureChannelCredentials();\n"
        self.assert_broken({"server/a.cc": code}, "server/a.cc:1:", "Security")
        for path in ("server/a_test.cc", "tests/a.cc", "client_lib/security/security.cc"):
            self.assert_clean({path: code})

    def test_only_one_header_prefetches(self):
        code = "__builtin_prefetch(row);\n"
        self.assert_broken({"server/a.cc": code}, "server/a.cc:1:", "compiler.h")
        self.assert_clean({"tests/a.cc": code})

    def test_only_tests_use_test_libraries(self):
        fake = {"worker/fake.h": header("worker/fake.h", "#include <gmock/gmock.h>")}
        self.assert_broken(fake, "gmock", "no test")
        library = 'cc_library(name = "fake", testonly = True, hdrs = %s)\n'
        self.assert_clean(dict(fake, **{"worker/BUILD": library % '["fake.h"]'}))
        self.assert_clean(dict(fake, **{"worker/BUILD": library % 'glob(["f*.h"])'}))
        build = 'cc_library(name = "loop", deps = ["//third_party:gtest_main"])\n'
        self.assert_broken({"worker/BUILD": build}, "gtest_main")
        self.assert_clean({"worker/BUILD": build.replace("deps", "testonly = True, deps")})

    def test_production_code_includes_no_fake(self):
        self.assert_broken({
            "worker/BUILD": 'cc_library(name = "fake", testonly = True, hdrs = ["fake.h"])\n',
            "worker/fake.h": header("worker/fake.h"),
            "worker/loop.cc": '#include "worker/fake.h"\n',
        }, "worker/loop.cc:1:", "testonly")

    def test_header_guards_spell_the_path(self):
        good = header("server/shard/row_store.h")
        self.assert_clean({"server/shard/row_store.h": good})
        bad = good.replace("#endif  // PAWL_SERVER", "#endif  // SERVER")
        self.assert_broken({"server/shard/row_store.h": bad}, "#endif")
        self.assertEqual(len(self.errors({"server/shard/rows.h": good})), 3)

    def test_stray_files_in_the_root_are_found(self):
        self.assert_clean({".bazelrc": "", "README.md": "", "tests/minimized-from-1": "x"})
        self.assert_broken({"minimized-from-1": "x"}, "minimized-from-1:1: does not belong")

    def test_git_file_of_a_worktree_is_ignored(self):
        self.assert_clean({".git": "gitdir: /ho" + "me/someone/project/.git/worktrees/one\n"})

    def test_no_file_names_a_path_of_one_machine(self):
        for folder in ("ho" + "me", "wo" + "rk", "ro" + "ot"):
            with self.subTest(folder=folder):
                path = "/" + folder + "/someone/data"
                self.assert_broken({"deploy/run": "#!/bin/bash\ncd %s\n" % path}, "deploy/run:2:")
                text = "see https://example.org%s and $HERE%s" % (path, path)
                self.assert_clean({"README.md": text})

    def test_lines_have_at_most_100_columns(self):
        long = "x" * 101
        self.assert_broken({"proto/a.proto": "// %s\n" % long}, "proto/a.proto:1:")
        self.assert_broken({"worker/a.py": "# %s\n" % long}, "worker/a.py:1:")
        self.assert_broken({"worker/BUILD": "# %s\n" % long}, "worker/BUILD:1:")
        self.assert_broken({"README.md": "a\n%s\n" % long}, "README.md:2:")
        for line in ("| %s |", "    %s", "```text\n%s\n```", "![%s](a.png)", "[1]: http://%s"):
            self.assert_clean({"README.md": "\n" + line % long + "\n"})
        self.assert_clean({"README.md": long[:100] + "\n"})

    def test_folders_hold_at_most_25_source_files(self):
        names = ["a%d.cc" % i for i in range(22)] + ["b.cu", "b.py", "b.proto"]
        folder = {"worker/train/" + name: "" for name in names}
        self.assert_clean(folder)
        not_counted = ("a_test.cc", "a_fuzz.cc", "a_test.py", "README.md", "sub/a.cc")
        self.assert_clean(dict(folder, **{"worker/train/" + name: "" for name in not_counted}))
        self.assert_broken(dict(folder, **{"worker/train/one_more.cc": ""}), "worker/train:1:",
                           "26 source files")

    def test_build_files_have_at_most_300_lines(self):
        self.assert_clean({"worker/BUILD": "# a\n" * 300})
        self.assert_broken({"worker/BUILD": "# a\n" * 301}, "worker/BUILD:301:", "301 lines")

    def test_bad_phrases_are_refused(self):
        for phrase in (
            "ask whoever knows", "Somebody asks", "nobody asks", "reads what is there",
            "two files, of which one is full", "Of two servers one is full",
            "the reign of a primary",
            "its last words", "a parked pull", "the job is begun", "the job is not begun",
            "a job that is over", "the job goes on", "it has it made anew", "once in its life",
            "a former life",
        ):
            for path, text in (("server/a.cc", "// %s\n"), ("proto/a.proto", "// %s\n"),
                               ("worker/a.py", "# %s\n"), ("tests/a.bzl", "# %s\n"),
                               ("worker/BUILD", "# %s\n"), ("deploy/a.md", "%s\n"),
                               ("deploy/a.sh", "# %s\n"), ("deploy/run", "#!/bin/bash\n# %s\n")):
                with self.subTest(phrase=phrase, path=path):
                    line = text.count("\n")
                    self.assert_broken({path: text % phrase}, "%s:%d:" % (path, line), "says '")
        for name in ("JobIsOver", "PeerIsGone", "RoutingHasChanged", "AllAreThere", "EndIsThere"):
            self.assert_broken({"server/a.cc": "bool %s(int job);\n" % name}, name)

    def test_bad_phrases_are_found_across_lines(self):
        self.assert_broken({"server/a.cc": "// Two files, of\n// which one is full.\n"},
                           "server/a.cc:2:", "of // which")
        self.assert_broken({"deploy/a.md": "It ends. Of\nthe rest it says nothing.\n"}, "Of")
        self.assert_broken({"deploy/a.md": "- Of the rest it says nothing.\n"}, "Of")
        self.assert_broken({"worker/a.py": '"""Of a rank."""\n'}, "Of")
        self.assert_broken({"worker/a.cc": 'Print("Of those, the last.");\n'}, "Of")

    def test_similar_phrases_are_accepted(self):
        for text in ("the body of whichever", "a sovereign", "OfTwo(servers)", "IsOver(job)",
                     "one of the files", "parking"):
            self.assert_clean({"server/a.cc": "// %s\n" % text})
        self.assert_clean({"deploy/data.txt": "nobody reads this\n"})

    def test_protos_import_only_protos(self):
        self.assert_broken({"proto/a.proto": 'import "server/b.proto";\n'}, "server/b.proto")

    def test_includes_start_at_the_root(self):
        self.assert_broken({"server/a.cc": '#include "../b.h"\n'}, "../b.h")

    def test_unreadable_build_file_is_an_error(self):
        self.assert_broken({"server/BUILD": "cc_library(name = \n"}, "server/BUILD")


if __name__ == "__main__":
    unittest.main()
