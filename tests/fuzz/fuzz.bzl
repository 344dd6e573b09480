"""Fuzz targets, and ordinary tests that replay their corpus."""

def pawl_fuzz_test(name, srcs, deps = [], tags = ["tsan"]):
    """Declares a fuzz target whose sources define LLVMFuzzerTestOneInput.

    <name>_fuzz_test is an ordinary test that feeds the files of corpus/<name>/ to the target.
    <name>_fuzzer searches for more inputs with libFuzzer:

        bazel build --config=fuzz //tests/fuzz:csv_fuzzer
        bazel-bin/tests/fuzz/csv_fuzzer -max_total_time=60 /tmp/found tests/fuzz/corpus/csv

    Add an input that crashes it, reduced with -minimize_crash=1, to corpus/<name>/.

    Args:
      name: the name of the target and of its folder in corpus/.
      srcs: the sources.
      deps: the dependencies of the sources.
      tags: the tags of the replay test.
    """
    native.cc_library(
        name = name + "_fuzz_target",
        testonly = True,
        srcs = srcs,
        visibility = ["//visibility:private"],
        deps = deps,
        alwayslink = True,
    )
    corpus = "corpus/" + name
    native.cc_test(
        name = name + "_fuzz_test",
        size = "small",
        srcs = ["//tests/fuzz:replay.cc"],
        args = [native.package_name() + "/" + corpus],
        data = native.glob([corpus + "/*"]),
        tags = tags,
        deps = [":" + name + "_fuzz_target"],
    )

    # Only clang has libFuzzer, so //... does not build this.
    native.cc_binary(
        name = name + "_fuzzer",
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":" + name + "_fuzz_target"],
    )
