// How long the holder of a lease may rely on it.
#ifndef PAWL_CLIENT_LIB_RPC_LEASE_H_
#define PAWL_CLIENT_LIB_RPC_LEASE_H_

#include "client_lib/base/clock.h"

namespace pawl {

// The clocks of two machines measure a lease differently. NTP slews a clock by at most 500 parts
// per million, so two clocks drift apart by at most a thousandth; a lease leaves room for ten times
// as much.
inline constexpr int kLeaseDriftDivisor = 100;

// The duration for which the holder relies on a lease, a little shorter than the giver does. The
// holder allows for all drift, so the giver (the scheduler, or a backup that has promised not to
// take over) uses leases as given.
inline MonotonicDuration HeldFor(MonotonicDuration lease) {
  return lease - lease / kLeaseDriftDivisor;
}

}  // namespace pawl

#endif  // PAWL_CLIENT_LIB_RPC_LEASE_H_
