#!/usr/bin/env python3
"""The rules of check_tree.py, each tried on a made-up tree that keeps it and one that breaks it."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
import check_tree  # noqa: E402


def header(path, body=""):
    guard = "PAWL_" + path.replace("/", "_").replace(".", "_").upper() + "_"
    return "#ifndef %s\n#define %s\n%s\n#endif  // %s\n" % (guard, guard, body, guard)


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

    def test_a_lawful_tree_passes(self):
        self.assert_clean({
            "proto/types.proto": 'import "google/protobuf/any.proto";\n',
            "proto/job.proto": 'import "proto/types.proto";\n',
            "client_lib/base/clock.h": header("client_lib/base/clock.h", "#include <chrono>"),
            "client_lib/rpc/channel.cc": '#include "client_lib/base/clock.h"\n#include "grpcpp/grpcpp.h"\n',
            "client_lib/session/client.cc": '#include "client_lib/rpc/channel.h"\n#include "proto/job.pb.h"\n',
            "server/shard/shard.cc": '#include <vector>\n#include "server/optimizer/sgd.h"\n',
            "server/service.cc": '#include "server/shard/shard.h"\n#include "client_lib/client.h"\n',
            "worker/main.cc": '#include "absl/flags/flag.h"\n#include "client_lib/client.h"\n',
            "worker/loop_test.cc": '#include "gtest/gtest.h"\n#include "server/shard/shard.h"\n',
        })

    def test_each_layer_refuses_what_lies_above_it(self):
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

    def test_layers_hold_for_deps_too(self):
        build = 'cc_library(name = "a", srcs = ["a.cc"], deps = ["//worker/data:reader"])\n'
        self.assert_broken({"client_lib/BUILD": build}, "client_lib/BUILD:1:", "//worker/data:reader")
        self.assert_clean({"client_lib/BUILD": build.replace("cc_library", "cc_test")})

    def test_the_shard_knows_no_grpc_files_time_or_threads(self):
        for include in ("grpcpp/grpcpp.h", "proto/parameter.grpc.pb.h", "spdlog/spdlog.h", "thread", "chrono",
                        "fstream", "unistd.h", "sys/stat.h", "client_lib/base/clock.h", "client_lib/base/file.h"):
            for folder in ("server/shard", "server/optimizer"):
                with self.subTest(include=include, folder=folder):
                    self.assert_broken({folder + "/a.cc": "#include <%s>\n" % include}, include)
        self.assert_broken(
            {"server/shard/BUILD": 'cc_library(name = "a", deps = ["//third_party:grpc"])\n'}, "//third_party:grpc")
        self.assert_clean({"server/shard/a_test.cc": "#include <chrono>\n#include <gtest/gtest.h>\n"})

    def test_what_else_a_folder_does_not_know(self):
        for folder, include in (("client_lib/base", "grpcpp/server.h"), ("server/replication", "grpcpp/server.h"),
                                ("server/replication", "client_lib/rpc/grpc/grpc_transport.h"),
                                ("server/replication", "unistd.h"), ("server/storage", "grpcpp/server.h"),
                                ("server/export", "grpcpp/server.h"), ("server/replication", "server/data_plane/data_plane.h")):
            with self.subTest(include=include, folder=folder):
                self.assert_broken({folder + "/a.cc": '#include "%s"\n' % include}, include)
        self.assert_clean({"server/storage/a.cc": "#include <unistd.h>\n"})
        self.assert_clean({"server/replication/a.cc": '#include "spdlog/spdlog.h"\n'})

    def test_only_main_files_read_flags(self):
        self.assert_broken({"worker/loop.cc": '#include "absl/flags/flag.h"\n'}, "worker/loop.cc:1:", "main.cc")
        self.assert_broken(
            {"worker/BUILD": 'cc_library(name = "loop", deps = ["//third_party:absl_flags"])\n'}, "absl_flags")
        self.assert_clean(
            {"worker/BUILD": 'cc_library(name = "main", srcs = ["main.cc"], deps = ["//third_party:absl_flags"])\n'})
        self.assert_clean({"deploy/pawlctl/command_line.cc": '#include "absl/flags/reflection.h"\n'})
        self.assert_broken({"deploy/pawlctl/run.cc": '#include "absl/flags/flag.h"\n'}, "deploy/pawlctl/run.cc")

    def test_only_tests_use_a_test_library(self):
        self.assert_broken({"worker/fake.h": header("worker/fake.h", "#include <gmock/gmock.h>")}, "gmock", "no test")
        fake = {"worker/fake.h": header("worker/fake.h", "#include <gmock/gmock.h>")}
        self.assert_clean(dict(fake, **{
            "worker/BUILD": 'cc_library(name = "fake", testonly = True, hdrs = ["fake.h"], deps = ["//third_party:gtest"])\n'
        }))
        self.assert_clean(dict(fake, **{
            "worker/BUILD": 'cc_library(name = "fake", testonly = True, hdrs = glob(["f*.h"]))\n'
        }))
        self.assert_broken(
            {"worker/BUILD": 'cc_library(name = "loop", deps = ["//third_party:gtest_main"])\n'}, "gtest_main")

    def test_production_code_does_not_include_a_fake(self):
        self.assert_broken({
            "worker/BUILD": 'cc_library(name = "fake", testonly = True, hdrs = ["fake.h"])\n',
            "worker/fake.h": header("worker/fake.h"),
            "worker/loop.cc": '#include "worker/fake.h"\n',
        }, "worker/loop.cc:1:", "testonly")

    def test_header_guards_spell_the_path(self):
        good = header("server/shard/row_store.h")
        self.assert_clean({"server/shard/row_store.h": good})
        self.assert_broken({"server/shard/row_store.h": good.replace("#endif  // PAWL_SERVER", "#endif  // SERVER")},
                           "#endif")
        self.assertEqual(len(self.errors({"server/shard/rows.h": good})), 3)

    def test_where_a_git_worktree_comes_from_is_not_part_of_the_tree(self):
        self.assert_clean({".git": "gitdir: /ho" + "me/someone/project/.git/worktrees/one\n"})

    def test_no_file_names_a_path_of_one_machine(self):
        for folder in ("ho" + "me", "wo" + "rk", "ro" + "ot"):
            with self.subTest(folder=folder):
                path = "/" + folder + "/someone/data"
                self.assert_broken({"deploy/run": "#!/bin/bash\ncd %s\n" % path}, "deploy/run:2:")
                self.assert_clean({"README.md": "see https://example.org%s and $HERE%s" % (path, path)})

    def test_lines_have_a_width(self):
        long = "x" * 126
        self.assert_broken({"proto/a.proto": "// %s\n" % long}, "proto/a.proto:1:")
        self.assert_broken({"README.md": "a\n%s\n" % long}, "README.md:2:")
        self.assert_clean({"README.md": "| %s |\n\n    %s\n\n```text\n%s\n```\n%s\n" % (long, long, long, long[:125])})

    def test_messages_import_messages_alone(self):
        self.assert_broken({"proto/a.proto": 'import "server/b.proto";\n'}, "server/b.proto")

    def test_includes_start_at_the_root(self):
        self.assert_broken({"server/a.cc": '#include "../b.h"\n'}, "../b.h")

    def test_a_build_file_that_cannot_be_read_is_an_error(self):
        self.assert_broken({"server/BUILD": "cc_library(name = \n"}, "server/BUILD")


if __name__ == "__main__":
    unittest.main()
