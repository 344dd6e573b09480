// For processors without AVX2.
#include "worker/device/cpu/loops/loops_impl.h"

namespace pawl {

extern const CpuLoops kPortableLoops = kLoops;

}  // namespace pawl
