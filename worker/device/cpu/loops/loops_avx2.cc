// Compiled with -mavx2.
#include "worker/device/cpu/loops/loops_impl.h"

namespace pawl {

extern const CpuLoops kAvx2Loops = kLoops;

}  // namespace pawl
