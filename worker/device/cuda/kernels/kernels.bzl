"""Builds kernels: with nvcc for GPUs, and with the C++ compiler for the emulator."""

load("@local_cuda//:defs.bzl", "CUDA_HOME", "CUDA_VERSION")

# The files of kernels that are also emulated; order.cu is not.
KERNELS = [
    "elementwise",
    "embedding",
    "interaction",
    "loss",
    "matrix",
    "optimizer",
]

# Code for Ampere's and Hopper's datacenter GPUs; from the PTX the driver makes code for all others
# from compute capability 8.0 on. Without implicit fused multiply-add, sums in the CPU's order have
# the CPU's bits.
_FLAGS = [
    "-std=c++17",
    "-O3",
    "-fmad=false",
    "-gencode=arch=compute_80,code=[sm_80,compute_80]",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-O2,-Wall,-Wextra",
    "-Xptxas=-v",
]

def cuda_kernels(name, headers):
    """Compiles <name>.cu to the object file <name>.pic.o and the report <name>.ptxas of ptxas.

    Args:
      name: the name of the file without .cu.
      headers: labels of the included headers of the project.
    """
    native.genrule(
        name = name + "_kernels",
        srcs = [name + ".cu"] + headers,
        outs = [name + ".pic.o", name + ".ptxas"],
        # The version in the command prevents reuse of another compiler's cached results.
        cmd = ": '%s'; %s/bin/nvcc %s -I. " %
              (CUDA_VERSION, CUDA_HOME, " ".join(["'%s'" % flag for flag in _FLAGS])) +
              "-c $(location %s.cu) -o $(location %s.pic.o) 2>$(location %s.ptxas) || " %
              (name, name, name) +
              "{ cat $(location %s.ptxas) >&2; exit 1; }" % name,
        message = "Compiling for GPUs",
    )

def emulated_kernels(name):
    """Makes <name>_emulated.cc from <name>.cu, which is compiled together with the emulator.

    Args:
      name: the name of the file without .cu.
    """
    native.genrule(
        name = name + "_emulated",
        testonly = True,
        srcs = [name + ".cu"],
        outs = [name + "_emulated.cc"],
        cmd = "{ echo '#include \"worker/device/cuda/emulator/emulator.h\"'; " +
              "echo '#line 1 \"$(location %s.cu)\"'; " % name +
              "cat $(location %s.cu); } >$@" % name,
    )
