// Compiled with -mavx512f, in vectors of 512 bits.
#include "worker/device/cpu/loops/loops_impl.h"

namespace pawl {

extern const CpuLoops kAvx512Loops = kLoops;

}  // namespace pawl
