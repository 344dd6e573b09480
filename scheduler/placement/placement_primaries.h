// How the servers come to have the same number of primaries.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_PRIMARIES_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_PRIMARIES_H_

#include "scheduler/placement/placement_draft.h"

namespace pawl {

// Every partition that is there gets a primary among its members, and as many go to each server,
// hot ones counted for what they cost. REQUIRES: as many members as there are to be; they stay.
void ChoosePrimaries(PlacementDraft& draft);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_PRIMARIES_H_
