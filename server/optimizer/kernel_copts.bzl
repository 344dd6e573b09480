"""Options of sources with kernels."""

# Vectorised, and without the checks that keep loops with sqrt and selections from
# it; neither option changes a result. -ffp-contract=off stands here too, because
# without it the results would differ.
KERNEL_COPTS = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
]
