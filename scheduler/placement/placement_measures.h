// How the servers come to have the same of bytes and keys.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_MEASURES_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_MEASURES_H_

#include "scheduler/placement/placement_draft.h"

namespace pawl {

// Exchanges partitions between the servers that differ the most: as long as that helps, by copying
// others instead of what is to be copied anyway, then by copying one more, then two. REQUIRES: as
// BalanceNumbers leaves it; the numbers stay.
void BalanceMeasures(PlacementDraft& draft);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_MEASURES_H_
