"""A repository with NVIDIA's toolkit; empty on machines without one."""

_HEADERS = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob([
        "include/*.h",
        "include/*.hpp",
        "include/crt/**",
        "include/cccl/**",
        "include/nv/**",
    ], allow_empty = True),
    includes = ["include", "include/cccl"],
)

# The runtime, linked statically. It loads the driver on its first call.
cc_library(
    name = "runtime",
    linkopts = [
        "-L{home}/lib64",
        "-lcudart_static",
        "-ldl",
        "-lrt",
        "-pthread",
    ],
    deps = [":headers"],
)
"""

_CUBLAS = """
cc_library(
    name = "cublas",
    linkopts = [
        "-L{home}/lib64",
        "-Wl,-rpath,{home}/lib64",
        "-lcublas",
    ],
    deps = [":headers"],
)
"""

_NCCL = """
cc_library(
    name = "nccl",
    linkopts = [
        "-L{home}/lib64",
        "-Wl,-rpath,{home}/lib64",
        "-lnccl",
    ],
    deps = [":runtime"],
)
"""

def _has(context, home, files):
    return all([context.path(home + "/" + file).exists for file in files])

_CUDA_FILES = [
    "include/cuda_runtime.h",
    "include/cublas_v2.h",
    "lib64/libcudart_static.a",
    "lib64/libcublas.so",
    "bin/nvcc",
]
_NCCL_FILES = [
    "include/cuda_runtime.h",
    "include/nccl.h",
    "lib64/libcudart_static.a",
    "lib64/libnccl.so",
]

# CUDA_HOME if it is set. Otherwise the usual folder if it is complete, or else the one that
# deploy/install_packages --with-cuda has made.
def _find_home(context):
    if context.os.environ.get("CUDA_HOME"):
        return context.os.environ["CUDA_HOME"]
    usual = "/usr/local/cuda"
    from_pypi = context.os.environ.get("HOME", "/root") + "/.cache/pawl/cuda"
    for home in [usual, from_pypi]:
        if _has(context, home, _CUDA_FILES + _NCCL_FILES):
            return home
    return usual

def _local_cuda_impl(context):
    home = _find_home(context)
    has_runtime = _has(context, home, ["include/cuda_runtime.h", "lib64/libcudart_static.a"])
    has_nccl = _has(context, home, _NCCL_FILES)
    has_cuda = _has(context, home, _CUDA_FILES)

    # nvcc's output depends on its version.
    version = ""
    if has_cuda:
        version = context.execute([home + "/bin/nvcc", "--version"]).stdout.strip().split("\n")[-1]
    context.file("defs.bzl", "HAVE_NCCL = %s\nHAVE_CUDA = %s\nCUDA_HOME = %r\nCUDA_VERSION = %r\n" %
                             (has_nccl, has_cuda, home, version))
    build = ""
    if has_runtime:
        context.symlink(home + "/include", "include")
        build += _HEADERS
    if has_cuda:
        build += _CUBLAS
    if has_nccl:
        build += _NCCL
    context.file("BUILD", build.format(home = home))

# Targets that need the toolkit are declared only if @local_cuda//:defs.bzl says HAVE_CUDA (nvcc,
# the runtime and cuBLAS) or HAVE_NCCL (the runtime and NCCL). Everything else builds without it.
local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    environ = ["CUDA_HOME", "HOME"],
    local = True,
)
