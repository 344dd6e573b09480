"""System libraries as Bazel targets."""

def system_library(name, libs, deps = [], defines = [], always_link = False, testonly = False):
    """Declares a cc_library that links system libraries and has no headers of its own.

    Args:
      name: the target's name.
      libs: library names as the linker's -l takes them.
      deps: other system libraries that these need.
      defines: preprocessor definitions that their headers expect.
      always_link: link it even where no symbol of it is used.
      testonly: only tests may depend on it.
    """
    native.cc_library(
        name = name,
        testonly = testonly,
        defines = defines,
        linkopts = [
            "-Wl,--push-state,--no-as-needed" if always_link else "-Wl,--push-state,--as-needed",
        ] + ["-l" + lib for lib in libs] + ["-Wl,--pop-state", "-pthread"],
        deps = deps,
    )
