// The arguments of a panel product, the same for the kernels of all processors.
#ifndef PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_H_
#define PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_H_

#include <cstddef>

namespace pawl {

// c[rows][columns] += a[rows][inner] * b[inner][columns], one block of the inner dimension.
struct PanelProduct {
  size_t rows = 0;
  size_t columns = 0;  // at most the kernel's kPanelColumns
  size_t inner = 0;
  // Element (i, k) is a[i * a_row_step + k * a_inner_step].
  const float* a = nullptr;
  size_t a_row_step = 0;
  size_t a_inner_step = 0;
  // Row k begins at b[k * b_stride] and can be read up to `columns` rounded up to whole vectors.
  const float* b = nullptr;
  size_t b_stride = 0;
  // The chains start with beta * c, or with 0 if beta is 0.
  float beta = 0;
  float* c = nullptr;
  size_t c_stride = 0;
  // Behind the chains: adds bias[columns], if not null, and then replaces negative elements by 0.
  const float* bias = nullptr;
  bool has_relu = false;
};

// A kernel: how many columns a panel of b has at most, how many floats a vector has, and the
// product with one panel.
struct PanelKernel {
  size_t panel_columns;
  size_t vector_floats;
  void (*multiply)(const PanelProduct& product);
};

// Compiled for instructions that a processor may lack: call only on processors that have them.
extern const PanelKernel kAvx512PanelKernel;
extern const PanelKernel kAvx2PanelKernel;
extern const PanelKernel kPortablePanelKernel;

}  // namespace pawl

#endif  // PAWL_WORKER_DEVICE_CPU_GEMM_PANEL_KERNEL_H_
