// How long a lease lasts for the one that holds it.
#ifndef PAWL_CLIENT_LIB_RPC_LEASE_H_
#define PAWL_CLIENT_LIB_RPC_LEASE_H_

#include "client_lib/base/clock.h"

namespace pawl {

// The clocks of two machines count a lease differently. NTP slews a clock by at most 500 parts in a
// million, so the clocks of two machines drift apart by at most a thousandth; a lease leaves room
// for ten times as much.
inline constexpr int kLeaseDriftDivisor = 100;

// The holder gives a lease up so much sooner than its giver takes it back. All drift is on the side
// of the holder, so the giver (the scheduler, or a backup that has promised not to take over)
// counts leases as they were given.
inline MonotonicDuration HeldFor(MonotonicDuration lease) {
  return lease - lease / kLeaseDriftDivisor;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_LEASE_H_
