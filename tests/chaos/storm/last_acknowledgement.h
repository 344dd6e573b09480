// The time of a sender's last acknowledgement.
#ifndef PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_
#define PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_

#include <string>

#include "client_lib/base/clock.h"

namespace pawl {

// Reads the time of the last acknowledgement from a file of notes (tests/harness/ledger/ledger.h)
// that may be growing. Returns the minimum time if there is none near the end.
MonotonicTime LastAcknowledgement(const std::string& path);

}  // namespace pawl

#endif  // PAWL_TESTS_CHAOS_STORM_LAST_ACKNOWLEDGEMENT_H_
