// How the replicas of each partition are brought to their number, in as many zones as possible.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_SPREAD_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_SPREAD_H_

#include "scheduler/placement/placement_draft.h"

namespace pawl {

// As many replicas of each partition as there are to be: superfluous ones go, missing ones come,
// and those that crowd a zone move to others. REQUIRES: quotas are set.
void SpreadReplicas(PlacementDraft& draft);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_SPREAD_H_
