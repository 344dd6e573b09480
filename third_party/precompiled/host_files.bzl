"""Files built in Bazel's host configuration: always in bazel-out/host/bin, whatever the flags."""

def _host_files_impl(context):
    return [DefaultInfo(files = depset(context.files.srcs))]

host_files = rule(
    implementation = _host_files_impl,
    attrs = {"srcs": attr.label_list(allow_files = True, cfg = "host")},
)
