// How the servers come to have the same number of replicas.
#ifndef PAWL_SCHEDULER_PLACEMENT_PLACEMENT_NUMBERS_H_
#define PAWL_SCHEDULER_PLACEMENT_PLACEMENT_NUMBERS_H_

#include "scheduler/placement/placement_draft.h"

namespace pawl {

// Hot partitions are shared out first; then replicas go from servers that have too many to those
// that have too few, until all have their quotas, rounded up or down. REQUIRES: as SpreadReplicas
// leaves it.
void BalanceNumbers(PlacementDraft& draft);

}  // namespace pawl

#endif  // PAWL_SCHEDULER_PLACEMENT_PLACEMENT_NUMBERS_H_
