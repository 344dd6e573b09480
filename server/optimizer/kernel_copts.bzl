"""Compiler options for sources with kernels."""

# Vectorise, and drop the checks that prevent it in loops with sqrt and selections; neither option
# changes a result. -ffp-contract=off is repeated here: without it the results would differ.
KERNEL_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
]
