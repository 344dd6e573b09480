"""NVIDIA's toolkit, where a machine has it: a repository with its libraries, or an empty one."""

def _local_cuda_impl(context):
    home = context.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    has_nccl = all([context.path(home + "/" + file).exists for file in [
        "include/cuda_runtime.h",
        "include/nccl.h",
        "lib64/libcudart_static.a",
        "lib64/libnccl.so",
    ]])
    context.file("defs.bzl", "HAVE_NCCL = %s\n" % has_nccl)
    if not has_nccl:
        context.file("BUILD", "")
        return
    context.symlink(home + "/include", "include")
    context.file("BUILD", """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "nccl",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/cccl/**",
        "include/nv/**",
    ], allow_empty = True),
    includes = ["include", "include/cccl"],
    linkopts = [
        "-L{home}/lib64",
        "-Wl,-rpath,{home}/lib64",
        "-lnccl",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-pthread",
    ],
)
""".format(home = home))

# Targets that need it are declared only where @local_cuda//:defs.bzl says HAVE_NCCL; everything else builds without.
local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
