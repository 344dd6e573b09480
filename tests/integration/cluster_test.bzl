"""Tests of clusters of real processes."""

_FAILPOINT_DAEMONS = [
    "//tests/chaos:pawl-scheduler-with-failpoints",
    "//tests/chaos:pawl-server-with-failpoints",
]

def cluster_test(name, deps = [], data = [], worker = False, failpoints = False, **kwargs):
    """Declares a cc_test of <name>.cc on the fixtures of cluster_test.h.

    Args:
      name: the test's name and that of its source.
      deps: what it uses besides the fixtures, Abseil and gtest.
      data: programs that it starts besides scheduler and server.
      worker: whether it starts workers.
      failpoints: whether it starts a scheduler or servers with failpoints.
      **kwargs: further attributes of the cc_test.
    """
    native.cc_test(
        name = name,
        size = "medium",
        srcs = [name + ".cc"],
        data = data + (["//worker:pawl-worker"] if worker else []) +
               (_FAILPOINT_DAEMONS if failpoints else []),
        deps = [
            ":cluster_test",
            "//third_party:absl",
            "//third_party:gtest_main",
        ] + deps,
        **kwargs
    )
